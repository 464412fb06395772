//! The consistency conditions of clause 3.3.2: each is a query that counts what contradicts it.

use anyhow::{Context, Result, ensure};
use varve_testbed::client::Client;

use super::schema::Scale;

/// What a customer has been delivered.
const DELIVERED: &str = "SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered
   FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
   WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id";
const PAID: &str = "SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history
   GROUP BY h_c_w_id, h_c_d_id, h_c_id";

/// The conditions that hold at any time, by their numbers; 10 and 12 are made of the queries above.
const CONDITIONS: [(u32, &str); 9] = [
    (
        1,
        "SELECT COUNT(*) FROM warehouse
         WHERE w_ytd <> (SELECT SUM(d_ytd) FROM district WHERE d_w_id = w_id)",
    ),
    (
        // A district whose orders have all been delivered has none that are new.
        2,
        "SELECT COUNT(*) FROM district
         WHERE d_next_o_id - 1 <>
               COALESCE((SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id), 0)
            OR d_next_o_id - 1 <>
               (SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)",
    ),
    (
        3,
        "SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 AS span, COUNT(*) AS count
                               FROM new_order GROUP BY no_w_id, no_d_id) AS districts
         WHERE span <> count",
    ),
    (
        4,
        "SELECT COUNT(*) FROM
           (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS said FROM orders GROUP BY o_w_id, o_d_id) AS districts
           LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS count FROM order_line
                      GROUP BY ol_w_id, ol_d_id) AS counted ON ol_w_id = o_w_id AND ol_d_id = o_d_id
         WHERE said <> COALESCE(count, 0)",
    ),
    (
        5,
        "SELECT COUNT(*) FROM orders
           LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        6,
        "SELECT COUNT(*) FROM orders
           LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS count FROM order_line
                      GROUP BY ol_w_id, ol_d_id, ol_o_id) AS counted
           ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
         WHERE o_ol_cnt <> COALESCE(count, 0)",
    ),
    (
        7,
        "SELECT COUNT(*) FROM orders
           JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
         WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    ),
    (
        8,
        "SELECT COUNT(*) FROM warehouse
         WHERE w_ytd <> (SELECT SUM(h_amount) FROM history WHERE h_w_id = w_id)",
    ),
    (
        9,
        "SELECT COUNT(*) FROM district
         WHERE d_ytd <> (SELECT SUM(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id)",
    ),
];

/// An error unless all conditions hold that do so at any time, and `orders` have been made.
pub fn check(client: &mut Client, orders: u64) -> Result<()> {
    let made = client.value("SELECT COUNT(*) FROM orders")?;
    ensure!(
        made == orders.to_string(),
        "{made} orders are there, {orders} were acknowledged"
    );
    for (number, sql) in CONDITIONS {
        holds(client, number, sql)?;
    }
    let customers = format!(
        "SELECT COUNT(*) FROM customer
           LEFT JOIN ({DELIVERED}) AS orders ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id"
    );
    let balance = format!(
        "{customers} LEFT JOIN ({PAID}) AS payments
           ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
         WHERE c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0)"
    );
    holds(client, 10, &balance)?;
    let payments = format!("{customers} WHERE c_balance + c_ytd_payment <> COALESCE(delivered, 0)");
    holds(client, 12, &payments)
}

/// Condition 11, which holds until the first delivery: of each district's orders so many are not new.
pub fn check_filled(client: &mut Client, scale: &Scale) -> Result<()> {
    let delivered = scale.delivered();
    let sql = format!(
        "SELECT COUNT(*) FROM district
         WHERE (SELECT COUNT(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) -
               (SELECT COUNT(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) <> {delivered}"
    );
    holds(client, 11, &sql)
}

fn holds(client: &mut Client, number: u32, sql: &str) -> Result<()> {
    let against = client.value(sql);
    let against = against.with_context(|| format!("consistency condition {number}"))?;
    ensure!(
        against == "0",
        "consistency condition {number} (clause 3.3.2.{number}) does not hold: {against} rows contradict it"
    );
    Ok(())
}
