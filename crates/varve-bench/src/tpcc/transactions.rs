//! The five transactions, after clauses 2.4 to 2.8: first what a terminal asks for, drawn at random, then the
//! statements of it, so that one that met a deadlock can be tried again as it was.
//!
//! The home warehouse is drawn anew each time: with fewer terminals than the ten of each warehouse that the
//! specification has, all warehouses are used alike nevertheless.

use anyhow::{Context, Result};
use fastrand::Rng;
use varve_testbed::client::{Client, Row};

use super::load::money;
use super::random::{self, customer, item};
use super::schema::{DISTRICTS, Scale};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// What was asked for, of a district of a warehouse.
pub struct Request {
    w: u32,
    d: u32,
    what: What,
}

enum What {
    NewOrder {
        customer: u32,
        lines: Vec<Line>,
    },
    Payment {
        /// Where the customer belongs.
        home: (u32, u32),
        customer: Customer,
        cents: u64,
    },
    OrderStatus(Customer),
    Delivery {
        carrier: u32,
    },
    StockLevel {
        threshold: u32,
    },
}

struct Line {
    item: u32,
    supplier: u32,
    quantity: u32,
}

/// Six in ten are looked for by their name.
enum Customer {
    Id(u32),
    Name(String),
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Committed,
    /// One of its items is not there.
    RolledBack,
}

impl Request {
    /// Draws one: 45 % new orders, 43 % payments, 4 % of each of the others.
    pub fn draw(rng: &mut Rng, scale: &Scale) -> Self {
        let w = rng.u32(1..=scale.warehouses);
        let d = rng.u32(1..=DISTRICTS);
        let what = match rng.u32(0..100) {
            0..45 => new_order(rng, scale, w),
            45..88 => payment(rng, scale, w, d),
            88..92 => What::OrderStatus(Customer::draw(rng, scale)),
            92..96 => What::Delivery {
                carrier: rng.u32(1..=10),
            },
            _ => What::StockLevel {
                threshold: rng.u32(10..=20),
            },
        };
        Self { w, d, what }
    }

    pub fn kind(&self) -> Kind {
        match self.what {
            What::NewOrder { .. } => Kind::NewOrder,
            What::Payment { .. } => Kind::Payment,
            What::OrderStatus(_) => Kind::OrderStatus,
            What::Delivery { .. } => Kind::Delivery,
            What::StockLevel { .. } => Kind::StockLevel,
        }
    }

    /// Runs it as one transaction. After an error the transaction may be under way.
    pub fn run(&self, client: &mut Client) -> Result<End> {
        client.query("START TRANSACTION")?;
        let &Self { w, d, ref what } = self;
        let is_whole = match what {
            What::NewOrder { customer, lines } => run_new_order(client, w, d, *customer, lines)?,
            What::Payment {
                home,
                customer,
                cents,
            } => run_payment(client, w, d, *home, customer, *cents)?,
            What::OrderStatus(customer) => run_order_status(client, w, d, customer)?,
            What::Delivery { carrier } => run_delivery(client, w, *carrier)?,
            What::StockLevel { threshold } => run_stock_level(client, w, d, *threshold)?,
        };
        let (end, said) = match is_whole {
            true => (End::Committed, "COMMIT"),
            false => (End::RolledBack, "ROLLBACK"),
        };
        client.query(said)?;
        Ok(end)
    }
}

impl Customer {
    fn draw(rng: &mut Rng, scale: &Scale) -> Self {
        match rng.u32(0..100) {
            0..60 => Self::Name(random::last_name_asked(rng, scale.customers)),
            _ => Self::Id(customer(rng, scale.customers)),
        }
    }

    /// The customer's number: of those with a name the one in the middle, by their first names.
    fn id(&self, client: &mut Client, w: u32, d: u32) -> Result<u32> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Name(name) => {
                let named = client.query(&format!(
                    "SELECT c_id FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{name}' \
                     ORDER BY c_first"
                ))?;
                let middle = named.len().saturating_sub(1) / 2;
                let row = named.get(middle);
                number(row.with_context(|| format!("nobody is called {name}"))?, 0)
            }
        }
    }
}

fn new_order(rng: &mut Rng, scale: &Scale, w: u32) -> What {
    let mut lines: Vec<Line> = (0..rng.u32(5..=15))
        .map(|_| Line {
            item: item(rng, scale.items),
            supplier: match rng.u32(0..100) {
                0 => other_warehouse(rng, scale, w),
                _ => w,
            },
            quantity: rng.u32(1..=10),
        })
        .collect();
    if rng.u32(0..100) == 0 {
        // There is no such item, which is found when the others have been ordered.
        let last = lines.last_mut().expect("there are five at least");
        last.item = scale.items + 1;
    }
    What::NewOrder {
        customer: customer(rng, scale.customers),
        lines,
    }
}

fn payment(rng: &mut Rng, scale: &Scale, w: u32, d: u32) -> What {
    let home = match rng.u32(0..100) {
        0..85 => (w, d),
        _ => (other_warehouse(rng, scale, w), rng.u32(1..=DISTRICTS)),
    };
    What::Payment {
        home,
        customer: Customer::draw(rng, scale),
        cents: rng.u64(100..=500_000),
    }
}

fn other_warehouse(rng: &mut Rng, scale: &Scale, w: u32) -> u32 {
    match scale.warehouses {
        1 => w,
        all => (w + rng.u32(0..all - 1)) % all + 1,
    }
}

/// False if an item is not there.
fn run_new_order(client: &mut Client, w: u32, d: u32, c: u32, lines: &[Line]) -> Result<bool> {
    row(
        client,
        &format!(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = {w} \
             AND c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ),
    )?;
    let of_district = row(
        client,
        &format!(
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = {w} AND d_id = {d} FOR UPDATE"
        ),
    )?;
    let o: u32 = number(&of_district, 0)?;
    client.query(&format!(
        "UPDATE district SET d_next_o_id = {o} + 1 WHERE d_w_id = {w} AND d_id = {d}"
    ))?;
    let count = lines.len();
    let all_local = u8::from(lines.iter().all(|line| line.supplier == w));
    client.query(&format!(
        "INSERT INTO orders VALUES ({o}, {d}, {w}, {c}, NOW(), NULL, {count}, {all_local})"
    ))?;
    client.query(&format!("INSERT INTO new_order VALUES ({o}, {d}, {w})"))?;
    for (number, line) in (1..).zip(lines) {
        if !order_item(client, (w, d, o), number, line)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A line of the order `o` of district `d`; false if there is no such item.
fn order_item(
    client: &mut Client,
    (w, d, o): (u32, u32, u32),
    number: usize,
    line: &Line,
) -> Result<bool> {
    let &Line {
        item,
        supplier,
        quantity,
    } = line;
    let found = client.query(&format!(
        "SELECT i_price, i_name, i_data FROM item WHERE i_id = {item}"
    ))?;
    let Some(of_item) = found.first() else {
        return Ok(false);
    };
    let price = cents(&self::text(of_item, 0)?)?;
    let of_stock = row(
        client,
        &format!(
            "SELECT s_quantity, s_dist_{d:02}, s_data FROM stock WHERE s_w_id = {supplier} \
             AND s_i_id = {item} FOR UPDATE"
        ),
    )?;
    let in_stock: u32 = self::number(&of_stock, 0)?;
    let left = match in_stock >= quantity + 10 {
        true => in_stock - quantity,
        false => in_stock + 91 - quantity,
    };
    let remote = u8::from(supplier != w);
    client.query(&format!(
        "UPDATE stock SET s_quantity = {left}, s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + {remote} WHERE s_w_id = {supplier} AND s_i_id = {item}"
    ))?;
    let (amount, info) = (money(price * u64::from(quantity)), text(&of_stock, 1)?);
    client.query(&format!(
        "INSERT INTO order_line VALUES ({o}, {d}, {w}, {number}, {item}, {supplier}, NULL, {quantity}, \
         {amount}, '{info}')"
    ))?;
    Ok(true)
}

fn run_payment(
    client: &mut Client,
    w: u32,
    d: u32,
    home: (u32, u32),
    customer: &Customer,
    cents: u64,
) -> Result<bool> {
    let amount = money(cents);
    client.query(&format!(
        "UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {w}"
    ))?;
    let of_warehouse = row(
        client,
        &format!(
            "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = {w}"
        ),
    )?;
    client.query(&format!(
        "UPDATE district SET d_ytd = d_ytd + {amount} WHERE d_w_id = {w} AND d_id = {d}"
    ))?;
    let of_district = row(
        client,
        &format!(
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
             WHERE d_w_id = {w} AND d_id = {d}"
        ),
    )?;
    let (cw, cd) = home;
    let c = customer.id(client, cw, cd)?;
    let is_customer = format!("c_w_id = {cw} AND c_d_id = {cd} AND c_id = {c}");
    let of_customer = row(
        client,
        &format!(
            "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, \
             c_since, c_credit, c_credit_lim, c_discount, c_balance FROM customer WHERE {is_customer} \
             FOR UPDATE"
        ),
    )?;
    // Of a customer of bad credit the payment is noted.
    let note = match self::text(&of_customer, 10)?.as_str() {
        "BC" => {
            format!(", c_data = LEFT(CONCAT('{c} {cd} {cw} {d} {w} {amount} | ', c_data), 500)")
        }
        _ => String::new(),
    };
    client.query(&format!(
        "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount}, \
         c_payment_cnt = c_payment_cnt + 1{note} WHERE {is_customer}"
    ))?;
    let (of_w, of_d) = (text(&of_warehouse, 0)?, text(&of_district, 0)?);
    client.query(&format!(
        "INSERT INTO history VALUES ({c}, {cd}, {cw}, {d}, {w}, NOW(), {amount}, '{of_w}    {of_d}')"
    ))?;
    Ok(true)
}

fn run_order_status(client: &mut Client, w: u32, d: u32, customer: &Customer) -> Result<bool> {
    let c = customer.id(client, w, d)?;
    row(
        client,
        &format!(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer \
             WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ),
    )?;
    let newest = row(
        client,
        &format!(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = {w} AND o_d_id = {d} \
             AND o_c_id = {c} ORDER BY o_id DESC LIMIT 1"
        ),
    )?;
    let o: u32 = number(&newest, 0)?;
    row(
        client,
        &format!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {o}"
        ),
    )?;
    Ok(true)
}

/// Delivers the oldest new order of each district that has one.
fn run_delivery(client: &mut Client, w: u32, carrier: u32) -> Result<bool> {
    for d in 1..=DISTRICTS {
        let oldest = client.query(&format!(
            "SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} \
             ORDER BY no_o_id LIMIT 1 FOR UPDATE"
        ))?;
        let Some(oldest) = oldest.first() else {
            continue;
        };
        let o: u32 = number(oldest, 0)?;
        client.query(&format!(
            "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {o}"
        ))?;
        let order = format!("o_w_id = {w} AND o_d_id = {d} AND o_id = {o}");
        let of_order = row(
            client,
            &format!("SELECT o_c_id FROM orders WHERE {order} FOR UPDATE"),
        )?;
        let c: u32 = number(&of_order, 0)?;
        client.query(&format!(
            "UPDATE orders SET o_carrier_id = {carrier} WHERE {order}"
        ))?;
        let lines = format!("ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {o}");
        client.query(&format!(
            "UPDATE order_line SET ol_delivery_d = NOW() WHERE {lines}"
        ))?;
        let sum = row(
            client,
            &format!("SELECT SUM(ol_amount) FROM order_line WHERE {lines}"),
        )?;
        let amount = text(&sum, 0)?;
        client.query(&format!(
            "UPDATE customer SET c_balance = c_balance + {amount}, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ))?;
    }
    Ok(true)
}

fn run_stock_level(client: &mut Client, w: u32, d: u32, threshold: u32) -> Result<bool> {
    let of_district = row(
        client,
        &format!("SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}"),
    )?;
    let next: i64 = number(&of_district, 0)?;
    let first = next - 20;
    row(
        client,
        &format!(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = {w} AND ol_d_id = {d} \
             AND ol_o_id >= {first} AND ol_o_id < {next} AND s_w_id = {w} AND s_i_id = ol_i_id \
             AND s_quantity < {threshold}"
        ),
    )?;
    Ok(true)
}

/// The first row of an answer that has one.
fn row(client: &mut Client, sql: &str) -> Result<Row> {
    let first = client.query(sql)?.into_iter().next();
    first.with_context(|| format!("no row was found: {sql}"))
}

fn text(row: &Row, column: usize) -> Result<String> {
    row[column].clone().context("a value is NULL")
}

fn number<T: std::str::FromStr>(row: &Row, column: usize) -> Result<T> {
    let value = text(row, column)?;
    let number = value.parse().ok();
    number.with_context(|| format!("{value} is no number"))
}

fn cents(amount: &str) -> Result<u64> {
    let (whole, cents) = amount.split_once('.').context("no decimals")?;
    Ok(whole.parse::<u64>()? * 100 + cents.parse::<u64>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_specification() {
        let mut rng = Rng::with_seed(7);
        let scale = Scale::new(10, 1.0);
        let mut counts = [0; 5];
        let (mut missing, mut lines, mut remote_lines, mut remote_payments) = (0, 0, 0, 0);
        for _ in 0..100_000 {
            let request = Request::draw(&mut rng, &scale);
            counts[request.kind() as usize] += 1;
            match &request.what {
                What::NewOrder { lines: ordered, .. } => {
                    missing += usize::from(ordered.iter().any(|line| line.item > scale.items));
                    lines += ordered.len();
                    remote_lines += ordered.iter().filter(|l| l.supplier != request.w).count();
                }
                What::Payment { home, .. } => {
                    remote_payments += usize::from(home.0 != request.w);
                }
                _ => {}
            }
        }
        let is_about = |count: usize, of: usize, share: f64| {
            let found = count as f64 / of as f64;
            assert!((found / share - 1.0).abs() < 0.1, "{found} is not {share}");
        };
        for (count, share) in counts.into_iter().zip([0.45, 0.43, 0.04, 0.04, 0.04]) {
            is_about(count, 100_000, share);
        }
        is_about(missing, counts[0], 0.01);
        is_about(remote_lines, lines, 0.01);
        is_about(remote_payments, counts[1], 0.15);
    }

    #[test]
    fn another_warehouse_is_another_one() {
        let mut rng = Rng::with_seed(7);
        let scale = Scale::new(3, 1.0);
        for w in 1..=3 {
            let drawn: Vec<u32> = (0..100)
                .map(|_| other_warehouse(&mut rng, &scale, w))
                .collect();
            let others = (1..=3).filter(|other| drawn.contains(other));
            assert_eq!(others.collect::<Vec<_>>().len(), 2);
            assert!(!drawn.contains(&w));
        }
        assert_eq!(other_warehouse(&mut rng, &Scale::new(1, 1.0), 1), 1);
    }

    #[test]
    fn money_is_read_as_it_is_written() {
        assert_eq!(cents("12.05").unwrap(), 1205);
        assert_eq!(money(1205), "12.05");
    }
}
