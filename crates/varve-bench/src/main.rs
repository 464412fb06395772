//! Benchmarks beside a peer: what counts is the ratio of the two in the same run on the same machine.

mod backup;
mod benchmark;
mod bigtable;
mod buffered;
mod bulk;
mod cascade;
mod commit;
mod ddl;
mod dictionary;
mod drop;
mod dump;
mod embedded;
mod estimates;
mod fill;
mod instructions;
mod load;
mod long_reader;
mod many_tables;
mod memcached;
mod memory;
mod monitor;
mod multi_table;
mod oltp;
mod origin;
mod process;
mod profile;
mod purge_lag;
mod purge_speed;
mod raw;
mod recovery;
mod sizes;
mod stats;
mod steady;
mod svg;
mod sysbench;
mod table;
mod tpcc;
mod tpch;
mod undo_truncate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use varve_testbed::command;
use varve_testbed::workspace::Workspace;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask bench",
    about = "Runs a benchmark beside its peer"
)]
struct Cli {
    #[command(subcommand)]
    task: BenchTask,
}

#[derive(clap::Subcommand)]
enum BenchTask {
    /// sysbench's OLTP workloads, alternating with InnoDB in the same server
    Oltp(oltp::OltpArgs),
    /// Updates of single rows, each on disk before the next: throughput, and writes and syncs of the log
    Commit(commit::CommitArgs),
    /// A 1 GiB table under a 32 MiB buffer pool
    Bigtable(bigtable::BigtableArgs),
    /// Many changes under an open snapshot: what it costs, and how fast purge catches up
    LongReader(long_reader::LongReaderArgs),
    /// mariadb-dump of a table, alone and beside writers
    Dump(dump::DumpArgs),
    /// Reads and changes of a table that is several times the buffer pool: throughput, bytes read and written
    Memory(memory::MemoryArgs),
    /// Several tables larger than the buffer pool, changed beside readers of long ranges, second by second
    MultiTable(multi_table::MultiTableArgs),
    /// Transactions, checkpoint age and dirty pages second by second, on tables larger than the buffer pool
    Steady(steady::SteadyArgs),
    /// What truncating undo tablespaces costs: oltp_read_write with truncation on and off by turns
    UndoTruncate(undo_truncate::UndoTruncateArgs),
    /// The history and the delay of writers, without and with a limit to purge lag
    PurgeLag(purge_lag::PurgeLagArgs),
    /// How fast purge alone works off a long history
    Purge(purge_speed::PurgeArgs),
    /// How soon a server answers after it was killed with gigabytes of redo, and when everything is applied
    Recovery(recovery::RecoveryArgs),
    /// A load after the TPC-C specification, with all its foreign keys
    Tpcc(tpcc::TpccArgs),
    /// The tables and queries of the TPC-H specification: plans and times, query by query
    Tpch(tpch::TpchArgs),
    /// How far off the optimizer's numbers of rows are, of values that are skewed or depend on each other
    Estimates(estimates::EstimatesArgs),
    /// A parent with a million children: a new key, which they follow, and the deletion of all
    Cascade(cascade::CascadeArgs),
    /// Statements that change a table's definition, or fill it, one by one; DROP and TRUNCATE beside readers
    Ddl(ddl::DdlArgs),
    /// Statements that change all rows of a table larger than the pool: time, bytes read and written
    Bulk(bulk::BulkArgs),
    /// Random values in several indexes larger than the pool: rows that come and go, points meanwhile
    Buffered(buffered::BufferedArgs),
    /// A backup of a server under load, and its restore, beside mariadb-backup with InnoDB
    Backup(backup::BackupArgs),
    /// An empty table is filled, by INSERT ... SELECT and LOAD DATA, in order and at random
    Fill(fill::FillArgs),
    /// Pages of a table, by the order in which its rows come
    Sizes(sizes::SizesArgs),
    /// Varve as a library beside other embedded engines
    Embedded(embedded::EmbeddedArgs),
    /// Instructions that one operation of the library takes
    Instructions(instructions::InstructionsArgs),
    /// Gets and sets of `varve serve` beside memcached and SQL
    Memcached(memcached::MemcachedArgs),
    /// What being watched costs: the monitor and SHOW ENGINE VARVE STATUS asked each second, or left alone
    Monitor(monitor::MonitorArgs),
    /// What many tables cost a server: making and dropping them, starts, memory
    ManyTables(many_tables::ManyTablesArgs),
    /// The same of the library
    Dictionary(dictionary::DictionaryArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = Workspace::find().and_then(|workspace| run(&workspace, &cli.task));
    command::end(done.map(|()| ExitCode::SUCCESS))
}

fn run(workspace: &Workspace, task: &BenchTask) -> Result<()> {
    match task {
        BenchTask::Oltp(args) => oltp::run(workspace, args),
        BenchTask::Commit(args) => commit::run(workspace, args),
        BenchTask::Bigtable(args) => bigtable::run(workspace, args),
        BenchTask::LongReader(args) => long_reader::run(workspace, args),
        BenchTask::Ddl(args) => ddl::run(workspace, args),
        BenchTask::Bulk(args) => bulk::run(workspace, args),
        BenchTask::Buffered(args) => buffered::run(workspace, args),
        BenchTask::Backup(args) => backup::run(workspace, args),
        BenchTask::Fill(args) => fill::run(workspace, args),
        BenchTask::Dump(args) => dump::run(workspace, args),
        BenchTask::Memory(args) => memory::run(workspace, args),
        BenchTask::MultiTable(args) => multi_table::run(workspace, args),
        BenchTask::Steady(args) => steady::run(workspace, args),
        BenchTask::UndoTruncate(args) => undo_truncate::run(workspace, args),
        BenchTask::PurgeLag(args) => purge_lag::run(workspace, args),
        BenchTask::Purge(args) => purge_speed::run(workspace, args),
        BenchTask::Recovery(args) => recovery::run(workspace, args),
        BenchTask::Tpcc(args) => tpcc::run(workspace, args),
        BenchTask::Tpch(args) => tpch::run(workspace, args),
        BenchTask::Estimates(args) => estimates::run(workspace, args),
        BenchTask::Cascade(args) => cascade::run(workspace, args),
        BenchTask::Sizes(args) => sizes::run(workspace, args),
        BenchTask::Embedded(args) => embedded::run(workspace, args),
        BenchTask::Instructions(args) => instructions::run(workspace, args),
        BenchTask::Memcached(args) => memcached::run(workspace, args),
        BenchTask::Monitor(args) => monitor::run(workspace, args),
        BenchTask::ManyTables(args) => many_tables::run(workspace, args),
        BenchTask::Dictionary(args) => dictionary::run(workspace, args),
    }
}
