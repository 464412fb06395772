//! `varve dump`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use varve::offline::{Salvaged, TableFile, recovered};
use varve::{Error, TableDef};

use crate::Outcome;
use crate::keys::KeyArgs;
use crate::text::Format;

/// What is to be printed of what.
#[derive(clap::Args)]
pub struct Args {
    /// A table's file, which is read alone and as it stands; or the directory of a database that nobody has
    /// open, with the table's name
    #[arg(value_name = "FILE.vdt|DIR")]
    from: PathBuf,
    /// The table of the database, as it is after recovery
    #[arg(value_name = "SCHEMA/TABLE")]
    table: Option<String>,
    /// One JSON object a line instead of CSV
    #[arg(long)]
    json: bool,
    /// Rows that are deleted but still there, too; a first column tells
    #[arg(long)]
    deleted: bool,
    /// With the definition of another file, of the same table or one that was made like it
    #[arg(long, value_name = "FILE.vdt")]
    like: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
}

impl Args {
    fn open(&self) -> Result<TableFile, Error> {
        let keys = self.keys.read()?;
        let mut file = match &self.table {
            Some(table) => recovered(&self.from, table, keys.clone())?,
            None => TableFile::open(&self.from, keys.clone())?,
        };
        if let Some(like) = &self.like {
            file.take_definition(&TableFile::open(like, keys)?);
        }
        Ok(file)
    }

    fn format(&self) -> Format {
        match self.json {
            true => Format::Json,
            false => Format::Csv,
        }
    }
}

pub fn run(args: &Args) -> Result<Outcome, String> {
    let file = args.open().map_err(|e| e.to_string())?;
    let Some(def) = file.definition() else {
        return Err(format!(
            "{}: the file has lost the table's definition: name another file of the same table by --like, or the data \
             directory and the table",
            args.from.display()
        ));
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let summary = print(args, &file, def, &mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())?;
    eprintln!(
        "{} rows, {} deleted rows{}, {} values lost, {} things skipped",
        summary.rows,
        summary.deleted_rows,
        if args.deleted { "" } else { " left out" },
        summary.lost_values,
        summary.skipped
    );
    Ok(match summary.lost_values + summary.skipped {
        0 => Outcome::Clean,
        _ => Outcome::Found,
    })
}

fn print(
    args: &Args,
    file: &TableFile,
    def: &TableDef,
    out: &mut dyn Write,
) -> Result<varve::offline::SalvageSummary, Error> {
    let mut line = String::new();
    let failed = |e: io::Error| Error::io("write", "standard output", e);
    args.format().header(def, args.deleted, &mut line);
    out.write_all(line.as_bytes()).map_err(failed)?;
    file.salvage(&mut |salvaged| {
        match salvaged {
            Salvaged::Skipped(what) => eprintln!("skipped: {what}"),
            Salvaged::Row {
                is_deleted: true, ..
            } if !args.deleted => {}
            Salvaged::Row { is_deleted, values } => {
                line.clear();
                let mark = args.deleted.then_some(is_deleted);
                args.format().row(def, mark, values, &mut line);
                out.write_all(line.as_bytes()).map_err(failed)?;
            }
        }
        Ok(())
    })
}
