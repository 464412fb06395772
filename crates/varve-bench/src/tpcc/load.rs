//! Fills the tables, after clause 4.3.3, with all constraints on: parents first, many rows a statement, each
//! statement a transaction.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::Result;
use fastrand::Rng;
use varve_testbed::client::Client;
use varve_testbed::server::Engine;

use super::random::{data, digits, last_name_loaded, text};
use super::schema::{self, DISTRICTS, Scale};

const ROWS_A_STATEMENT: usize = 500;
/// Each fills one warehouse after the other.
const CLIENTS: usize = 2;

/// Makes the database and fills it. Returns how many rows there are.
pub fn fill(socket: &Path, database: &str, engine: Engine, scale: &Scale) -> Result<u64> {
    let mut client = Client::connect(socket)?;
    schema::create(&mut client, database, engine)?;
    let mut rows = items(&mut client, scale)?;
    // Relaxed: it hands out numbers, and nothing else depends on it.
    let next = AtomicU32::new(1);
    let work = || -> Result<u64> {
        let mut client = Client::connect(socket)?;
        client.query(&format!("USE {database}"))?;
        let mut rows = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number > scale.warehouses {
                return Ok(rows);
            }
            rows += warehouse(&mut client, scale, number)?;
        }
    };
    let filled: Vec<Result<u64>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        let ends = clients.into_iter().map(|client| client.join());
        ends.map(|end| end.expect("it does not panic")).collect()
    });
    for of_client in filled {
        rows += of_client?;
    }
    Ok(rows)
}

/// Has both engines know their tables as well before they are measured.
pub fn analyze(socket: &Path, database: &str) -> Result<()> {
    let mut client = Client::connect(socket)?;
    for table in schema::table_names() {
        client.query(&format!("ANALYZE TABLE {database}.{table}"))?;
    }
    Ok(())
}

/// Rows of one table on their way.
struct Rows<'a> {
    client: &'a mut Client,
    table: &'static str,
    sql: String,
    waiting: usize,
    sent: u64,
}

impl<'a> Rows<'a> {
    fn of(client: &'a mut Client, table: &'static str) -> Self {
        Self {
            client,
            table,
            sql: String::new(),
            waiting: 0,
            sent: 0,
        }
    }

    /// `values`: those of a row, as SQL has them.
    fn add(&mut self, values: std::fmt::Arguments<'_>) -> Result<()> {
        match self.waiting {
            0 => write!(self.sql, "INSERT INTO {} VALUES ({values})", self.table)?,
            _ => write!(self.sql, ",({values})")?,
        }
        self.waiting += 1;
        match self.waiting < ROWS_A_STATEMENT {
            true => Ok(()),
            false => self.send(),
        }
    }

    fn send(&mut self) -> Result<()> {
        if self.waiting > 0 {
            self.client.query(&self.sql)?;
            self.sent += self.waiting as u64;
            self.sql.clear();
            self.waiting = 0;
        }
        Ok(())
    }

    /// Sends the rest. Returns how many rows were sent in all.
    fn end(mut self) -> Result<u64> {
        self.send()?;
        Ok(self.sent)
    }
}

fn items(client: &mut Client, scale: &Scale) -> Result<u64> {
    let rng = &mut Rng::with_seed(0);
    let mut rows = Rows::of(client, "item");
    for item in 1..=scale.items {
        let (image, name) = (rng.u32(1..=10_000), text(rng, 14, 24));
        let (price, data) = (rng.u32(100..=10_000), data(rng));
        let price = money(price.into());
        rows.add(format_args!("{item},{image},'{name}',{price},'{data}'"))?;
    }
    rows.end()
}

/// A warehouse with all that is in it.
fn warehouse(client: &mut Client, scale: &Scale, w: u32) -> Result<u64> {
    let rng = &mut Rng::with_seed(w.into());
    let mut rows = Rows::of(client, "warehouse");
    let (name, address, tax) = (text(rng, 6, 10), address(rng), rng.u32(0..=2000));
    // What was paid: ten by each customer.
    let paid = 10 * scale.customers;
    let in_all = paid * DISTRICTS;
    rows.add(format_args!("{w},'{name}',{address},{tax}/10000,{in_all}"))?;
    let mut count = rows.end()?;
    count += stock(client, rng, scale, w)?;
    let mut rows = Rows::of(client, "district");
    let next = scale.customers + 1;
    for d in 1..=DISTRICTS {
        let (name, address, tax) = (text(rng, 6, 10), self::address(rng), rng.u32(0..=2000));
        rows.add(format_args!(
            "{d},{w},'{name}',{address},{tax}/10000,{paid},{next}"
        ))?;
    }
    count += rows.end()?;
    for d in 1..=DISTRICTS {
        count += customers(client, rng, scale, w, d)?;
        count += history(client, rng, scale, w, d)?;
        count += orders(client, rng, scale, w, d)?;
    }
    Ok(count)
}

fn stock(client: &mut Client, rng: &mut Rng, scale: &Scale, w: u32) -> Result<u64> {
    let mut rows = Rows::of(client, "stock");
    for item in 1..=scale.items {
        let quantity = rng.u32(10..=100);
        let districts: Vec<String> = (0..DISTRICTS).map(|_| text(rng, 24, 24)).collect();
        let (districts, data) = (districts.join("','"), data(rng));
        rows.add(format_args!(
            "{item},{w},{quantity},'{districts}',0,0,0,'{data}'"
        ))?;
    }
    rows.end()
}

fn customers(client: &mut Client, rng: &mut Rng, scale: &Scale, w: u32, d: u32) -> Result<u64> {
    let mut rows = Rows::of(client, "customer");
    for c in 1..=scale.customers {
        let (last, first) = (last_name_loaded(rng, c), text(rng, 8, 16));
        let (address, phone) = (address(rng), digits(rng, 16));
        let credit = if rng.u32(0..10) == 0 { "BC" } else { "GC" };
        let (discount, data) = (rng.u32(0..=5000), text(rng, 300, 500));
        rows.add(format_args!(
            "{c},{d},{w},'{first}','OE','{last}',{address},'{phone}',NOW(),'{credit}',50000,{discount}/10000,\
             -10,10,1,0,'{data}'"
        ))?;
    }
    rows.end()
}

fn history(client: &mut Client, rng: &mut Rng, scale: &Scale, w: u32, d: u32) -> Result<u64> {
    let mut rows = Rows::of(client, "history");
    for c in 1..=scale.customers {
        let data = text(rng, 12, 24);
        rows.add(format_args!("{c},{d},{w},{d},{w},NOW(),10,'{data}'"))?;
    }
    rows.end()
}

/// A district's orders, one of each customer, with their lines; those that are not delivered are new.
fn orders(client: &mut Client, rng: &mut Rng, scale: &Scale, w: u32, d: u32) -> Result<u64> {
    let mut customers: Vec<u32> = (1..=scale.customers).collect();
    rng.shuffle(&mut customers);
    let lines: Vec<u32> = customers.iter().map(|_| rng.u32(5..=15)).collect();
    let orders = || (1..).zip(customers.iter().zip(&lines));
    let mut rows = Rows::of(client, "orders");
    for (o, (c, lines)) in orders() {
        let carrier = match o <= scale.delivered() {
            true => rng.u32(1..=10).to_string(),
            false => "NULL".into(),
        };
        rows.add(format_args!("{o},{d},{w},{c},NOW(),{carrier},{lines},1"))?;
    }
    let mut count = rows.end()?;
    let mut rows = Rows::of(client, "new_order");
    for o in scale.delivered() + 1..=scale.customers {
        rows.add(format_args!("{o},{d},{w}"))?;
    }
    count += rows.end()?;
    let mut rows = Rows::of(client, "order_line");
    for (o, (_, lines)) in orders() {
        for number in 1..=*lines {
            let (item, info) = (rng.u32(1..=scale.items), text(rng, 24, 24));
            let (delivered, amount) = match o <= scale.delivered() {
                true => ("NOW()", 0),
                false => ("NULL", rng.u32(1..=999_999)),
            };
            let amount = money(amount.into());
            rows.add(format_args!(
                "{o},{d},{w},{number},{item},{w},{delivered},5,{amount},'{info}'"
            ))?;
        }
    }
    Ok(count + rows.end()?)
}

/// Two streets, city, state and zip.
fn address(rng: &mut Rng) -> String {
    let (street, second) = (text(rng, 10, 20), text(rng, 10, 20));
    let (city, state) = (text(rng, 10, 20), text(rng, 2, 2).to_uppercase());
    let zip = digits(rng, 4);
    format!("'{street}','{second}','{city}','{state}','{zip}11111'")
}

/// Cents, as SQL has them.
pub fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
