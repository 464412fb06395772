//! What tests and benchmarks of the plugin need: a MariaDB server of our own, and SQL over its socket.
//!
//! | module | job |
//! |---|---|
//! | `workspace`, `command` | where things are, how programs are run |
//! | `prefix` | the one MariaDB that the plugin fits, and this checkout's view of it |
//! | `plugin` | build and check `ha_varve.so` |
//! | `server`, `client` | a `mariadbd` of our own, and SQL over its socket |
//! | `session` | a connection in a thread |
//! | `memcached` | memcached, and clients of it |
//! | `cached` | what is fetched once |
//!
//! Nothing here needs root, a package to be installed, or a port other than those on the command line. No
//! part of the product depends on it.

pub mod cached;
pub mod client;
pub mod command;
pub mod memcached;
pub mod plugin;
pub mod prefix;
pub mod server;
pub mod session;
pub mod workspace;
