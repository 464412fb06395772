//! `varve dump`.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use varve::offline::{Salvaged, TableFile, recovered};
use varve::{Error, TableDef};

use crate::Outcome;
use crate::text::Format;

/// What is to be printed of what.
#[derive(Default)]
pub struct Request<'a> {
    format: Format,
    deleted: bool,
    like: Option<&'a str>,
    from: Vec<&'a str>,
}

impl<'a> Request<'a> {
    pub fn parse(args: &[&'a str]) -> Result<Request<'a>, String> {
        let mut request = Request::default();
        let mut args = args.iter().copied();
        while let Some(arg) = args.next() {
            match arg {
                "--json" => request.format = Format::Json,
                "--deleted" => request.deleted = true,
                "--like" => request.like = Some(args.next().ok_or("--like takes a file")?),
                _ if arg.starts_with('-') => return Err(format!("dump has no option {arg}")),
                _ => request.from.push(arg),
            }
        }
        match request.from.len() {
            1 | 2 => Ok(request),
            _ => Err("dump takes FILE.vdt, or DIR and SCHEMA/TABLE".into()),
        }
    }

    fn open(&self) -> Result<TableFile, Error> {
        let mut file = match self.from.as_slice() {
            [dir, name] => recovered(Path::new(dir), name)?,
            rest => TableFile::open(rest[0])?,
        };
        if let Some(like) = self.like {
            file.take_definition(&TableFile::open(like)?);
        }
        Ok(file)
    }
}

pub fn run(request: Request<'_>) -> Result<Outcome, String> {
    let file = request.open().map_err(|e| e.to_string())?;
    let Some(def) = file.definition() else {
        let from = request.from.join(" ");
        return Err(format!(
            "{from}: the file has lost the table's definition: name another file of the same table by --like, or the data \
             directory and the table"
        ));
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let summary = print(&request, &file, def, &mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())?;
    eprintln!(
        "{} rows, {} deleted rows{}, {} values lost, {} things skipped",
        summary.rows,
        summary.deleted_rows,
        if request.deleted { "" } else { " left out" },
        summary.lost_values,
        summary.skipped
    );
    Ok(match summary.lost_values + summary.skipped {
        0 => Outcome::Clean,
        _ => Outcome::Found,
    })
}

fn print(
    request: &Request<'_>,
    file: &TableFile,
    def: &TableDef,
    out: &mut dyn Write,
) -> Result<varve::offline::SalvageSummary, Error> {
    let mut line = String::new();
    let failed = |e: io::Error| Error::io("write", "standard output", e);
    request.format.header(def, request.deleted, &mut line);
    out.write_all(line.as_bytes()).map_err(failed)?;
    file.salvage(&mut |salvaged| {
        match salvaged {
            Salvaged::Skipped(what) => eprintln!("skipped: {what}"),
            Salvaged::Row {
                is_deleted: true, ..
            } if !request.deleted => {}
            Salvaged::Row { is_deleted, values } => {
                line.clear();
                let mark = request.deleted.then_some(is_deleted);
                request.format.row(def, mark, values, &mut line);
                out.write_all(line.as_bytes()).map_err(failed)?;
            }
        }
        Ok(())
    })
}
