//! The nine tables, after clause 1.3, with all their primary and foreign keys, and how many rows they have.

use anyhow::Result;
use varve_testbed::client::Client;
use varve_testbed::server::Engine;

pub const DISTRICTS: u32 = 10;

/// How many rows there are.
#[derive(Clone, Copy)]
pub struct Scale {
    pub warehouses: u32,
    /// Each warehouse stocks all of them.
    pub items: u32,
    /// Of each district, which begins with as many orders.
    pub customers: u32,
}

impl Scale {
    /// `share`: of the items and customers that the specification wants. There are some of each at least.
    pub fn new(warehouses: u32, share: f64) -> Self {
        let share_of = |whole: u32| (f64::from(whole) * share) as u32;
        Self {
            warehouses,
            items: share_of(100_000).max(100),
            customers: share_of(3000).max(30),
        }
    }

    /// Of a district's first orders this many have been delivered: 2,100 of 3,000.
    pub fn delivered(&self) -> u32 {
        self.customers * 7 / 10
    }

    pub fn districts(&self) -> u32 {
        self.warehouses * DISTRICTS
    }
}

/// Parents come before their children. The indexes are those of the foreign keys, and the two by which
/// customers are found by their names, and orders by their customers.
const TABLES: [&str; 9] = [
    "warehouse (
       w_id SMALLINT NOT NULL, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20),
       w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9), w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2),
       PRIMARY KEY (w_id))",
    "district (
       d_id TINYINT NOT NULL, d_w_id SMALLINT NOT NULL, d_name VARCHAR(10), d_street_1 VARCHAR(20),
       d_street_2 VARCHAR(20), d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9), d_tax DECIMAL(4,4),
       d_ytd DECIMAL(12,2), d_next_o_id INT NOT NULL,
       PRIMARY KEY (d_w_id, d_id),
       FOREIGN KEY (d_w_id) REFERENCES warehouse (w_id))",
    "customer (
       c_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_w_id SMALLINT NOT NULL, c_first VARCHAR(16),
       c_middle CHAR(2), c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20),
       c_city VARCHAR(20), c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16), c_since DATETIME,
       c_credit CHAR(2), c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2),
       c_ytd_payment DECIMAL(12,2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500),
       PRIMARY KEY (c_w_id, c_d_id, c_id),
       KEY by_name (c_w_id, c_d_id, c_last, c_first),
       FOREIGN KEY (c_w_id, c_d_id) REFERENCES district (d_w_id, d_id))",
    "history (
       h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_w_id SMALLINT NOT NULL, h_d_id TINYINT NOT NULL,
       h_w_id SMALLINT NOT NULL, h_date DATETIME, h_amount DECIMAL(6,2), h_data VARCHAR(24),
       KEY by_customer (h_c_w_id, h_c_d_id, h_c_id),
       KEY by_district (h_w_id, h_d_id),
       FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id),
       FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id))",
    "item (
       i_id INT NOT NULL, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50),
       PRIMARY KEY (i_id))",
    "stock (
       s_i_id INT NOT NULL, s_w_id SMALLINT NOT NULL, s_quantity SMALLINT, s_dist_01 CHAR(24),
       s_dist_02 CHAR(24), s_dist_03 CHAR(24), s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24),
       s_dist_07 CHAR(24), s_dist_08 CHAR(24), s_dist_09 CHAR(24), s_dist_10 CHAR(24), s_ytd DECIMAL(8,0),
       s_order_cnt INT, s_remote_cnt INT, s_data VARCHAR(50),
       PRIMARY KEY (s_w_id, s_i_id),
       KEY by_item (s_i_id),
       FOREIGN KEY (s_w_id) REFERENCES warehouse (w_id),
       FOREIGN KEY (s_i_id) REFERENCES item (i_id))",
    "orders (
       o_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_w_id SMALLINT NOT NULL, o_c_id INT NOT NULL,
       o_entry_d DATETIME, o_carrier_id TINYINT, o_ol_cnt TINYINT, o_all_local TINYINT,
       PRIMARY KEY (o_w_id, o_d_id, o_id),
       KEY by_customer (o_w_id, o_d_id, o_c_id, o_id),
       FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer (c_w_id, c_d_id, c_id))",
    "new_order (
       no_o_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_w_id SMALLINT NOT NULL,
       PRIMARY KEY (no_w_id, no_d_id, no_o_id),
       FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders (o_w_id, o_d_id, o_id))",
    "order_line (
       ol_o_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_w_id SMALLINT NOT NULL, ol_number TINYINT NOT NULL,
       ol_i_id INT NOT NULL, ol_supply_w_id SMALLINT NOT NULL, ol_delivery_d DATETIME, ol_quantity TINYINT,
       ol_amount DECIMAL(6,2), ol_dist_info CHAR(24),
       PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number),
       KEY by_stock (ol_supply_w_id, ol_i_id),
       FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders (o_w_id, o_d_id, o_id),
       FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES stock (s_w_id, s_i_id))",
];

/// Makes the database anew, with empty tables, and uses it.
pub fn create(client: &mut Client, database: &str, engine: Engine) -> Result<()> {
    client.query(&format!("DROP DATABASE IF EXISTS {database}"))?;
    client.query(&format!("CREATE DATABASE {database}"))?;
    client.query(&format!("USE {database}"))?;
    for table in TABLES {
        let engine = engine.name();
        client.query(&format!("CREATE TABLE {table} ENGINE={engine}"))?;
    }
    Ok(())
}

pub fn table_names() -> impl Iterator<Item = &'static str> {
    let name = |table: &'static str| table.split_once(' ').expect("a name comes first").0;
    TABLES.into_iter().map(name)
}
