//! A table's file explains itself, also if the definition is longer than a page: what dump reads of it alone.
//!
//! What could break here: a definition that is not found, or not the table's any more after RENAME; one half
//! of an old and one half of a new definition after a crash; damage of one of its pages that takes the rest,
//! or that nobody notices; pages that count as lost.

use std::path::Path;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use varve::offline::{Grade, Salvaged, check_on, table_file_on};
use varve::{ColumnType, Database, Isolation, TableDef, Value};
use varve_sim::sample::{DIR, PAGE, Place, open};
use varve_sim::{CrashPoints, SimDisk};

const COLUMNS: usize = 300;
const INDEXES: usize = 5;
const ROWS: i64 = 40;
/// Behind page 2 and the roots.
const LAST_OF_DEFINITION: [u64; 2] = [9, 10];

fn wide(name: &str) -> TableDef {
    let names: Vec<String> = (0..COLUMNS)
        .map(|n| format!("column_number_{n:04}"))
        .collect();
    let mut def = TableDef::new(name);
    for name in &names {
        def = def.column(name, ColumnType::i16());
    }
    def = def.primary(&[&names[0]]);
    for name in &names[1..=INDEXES] {
        def = def.index(&format!("by_{name}"), &[name]);
    }
    def
}

fn create(db: &Database, name: &str) {
    let table = db.create_table(&wide(name)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row: Vec<Value> = (0..COLUMNS as i64).map(|n| Value::Int(id + n)).collect();
        table.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
}

/// The damage that a check finds.
fn damages(disk: &SimDisk) -> Vec<String> {
    let mut damages = Vec::new();
    let tell = &mut |f: &varve::offline::Finding| {
        if f.grade == Grade::Damage {
            damages.push(f.to_string());
        }
    };
    check_on(Arc::new(disk.clone()), Path::new(DIR), tell).unwrap();
    damages
}

/// The table's definition as its file has it, and how many rows are saved by it.
fn alone(disk: &SimDisk, name: &str) -> Option<(TableDef, u64)> {
    let path = Path::new(DIR).join(format!("{name}.vdt"));
    let file = table_file_on(disk, &path).unwrap();
    let def = file.definition()?.clone();
    let count = &mut |salvaged: Salvaged<'_>| {
        if let Salvaged::Row { values, .. } = salvaged {
            assert_eq!(values.len(), COLUMNS);
        }
        Ok(())
    };
    let rows = file.salvage(count).unwrap().rows;
    Some((def, rows))
}

#[test]
fn a_long_definition_is_found_in_the_file_alone() {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    create(&db, "a/wide");
    db.rename_table("a/wide", "a/renamed_to_something_longer")
        .unwrap();
    let def = db
        .table("a/renamed_to_something_longer")
        .unwrap()
        .def()
        .clone();
    db.close().unwrap();
    let mut encoded = Vec::new();
    def.encode(&mut encoded);
    assert!(encoded.len() > 2 * PAGE, "{} bytes", encoded.len());
    assert_eq!(damages(&disk), [""; 0]);
    assert_eq!(alone(&disk, &def.name), Some((def.clone(), ROWS as u64)));

    let file = Path::new(DIR).join(format!("{}.vdt", def.name));
    let last = LAST_OF_DEFINITION[1];
    for no in 0..=last {
        let lost = disk.copy();
        let place = Place {
            file: file.clone(),
            no,
        };
        let mut page = place.read(&lost);
        page[PAGE / 2..].fill(0x5a);
        // There the definition begins in the first half.
        if no == 0 {
            page[136..PAGE / 2].fill(0x5a);
        }
        place.write(&lost, &page);
        let told = damages(&lost).join("\n");
        assert!(
            told.contains(&format!("{}.vdt, page {no}:", def.name)),
            "page {no}: {told}"
        );
        let found = alone(&lost, &def.name);
        let is_of_definition = no == 2 || LAST_OF_DEFINITION.contains(&no);
        match found {
            None => assert!(is_of_definition, "page {no}"),
            // Without page 0 the table is called as it was when the file was made.
            Some((found, rows)) if no == 0 => {
                let mut made = def.clone();
                made.name = "a/wide".into();
                assert_eq!((found, rows), (made, ROWS as u64));
            }
            Some((found, _)) => {
                assert!(!is_of_definition, "page {no}");
                assert_eq!(found, def, "page {no}");
            }
        }
    }
    // What lies behind is no part of it.
    let next = Place { file, no: last + 1 };
    next.write(&disk, &[0x5a; PAGE]);
    assert_eq!(alone(&disk, &def.name).unwrap().0, def);
}

/// DEF-2: a page of the definition that is whole, but another table's.
/// Page 0 says what columns are called now, if the definition fits there; of a long one the file alone tells
/// what they were called at first. Neither is damage.
#[test]
fn columns_get_other_names() {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    create(&db, "a/wide");
    let short = TableDef::new("a/short")
        .column("id", ColumnType::i64())
        .primary(&["id"]);
    db.create_table(&short).unwrap();
    let names: Vec<String> = (0..COLUMNS).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    db.rename_columns("a/wide", &names).unwrap();
    db.rename_columns("a/short", &["number"]).unwrap();
    for name in ["a/wide", "a/short"] {
        let report = db.check_table(&db.table(name).unwrap()).unwrap();
        assert_eq!(report.errors, [""; 0], "{name}");
    }
    db.close().unwrap();
    assert_eq!(damages(&disk), [""; 0]);
    let (wide, rows) = alone(&disk, "a/wide").unwrap();
    assert_eq!(wide.columns[7].name, "column_number_0007");
    assert_eq!(rows, ROWS as u64);
    let (short, _) = alone(&disk, "a/short").unwrap();
    assert_eq!(short.columns[0].name, "number");
    let db = open(&disk).unwrap();
    assert_eq!(db.table("a/wide").unwrap().def().columns[7].name, "c7");
}

#[test]
fn a_wrong_copy_is_noticed() {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    create(&db, "a/wide");
    create(&db, "a/other");
    db.close().unwrap();
    let place = |name: &str, no: u64| Place {
        file: Path::new(DIR).join(format!("{name}.vdt")),
        no,
    };
    for no in [0, 2, LAST_OF_DEFINITION[0], LAST_OF_DEFINITION[1]] {
        let wrong = disk.copy();
        let other = place("a/other", no).read(&disk);
        // What the page says of itself stays.
        let from = if no == 0 { 136 } else { 64 };
        place("a/wide", no).change(&wrong, |page| page[from..].copy_from_slice(&other[from..]));
        let told = damages(&wrong).join("\n");
        assert!(told.contains("a/wide.vdt"), "page {no}: {told}");
        assert!(!told.contains("a/other.vdt"), "page {no}: {told}");
    }
}

/// Before recovery the file has one name or the other, but it always has a definition. After it the table is
/// sound.
#[test]
fn a_crash_leaves_no_half_of_a_definition() {
    let disk = SimDisk::default();
    open(&disk).unwrap().close().unwrap();
    let db = open(&disk).unwrap();
    let begun = disk.operations();
    create(&db, "a/wide");
    db.close().unwrap();
    let db = open(&disk).unwrap();
    let made = disk.operations();
    db.rename_table("a/wide", "a/renamed").unwrap();
    let def = db.table("a/renamed").unwrap().def().clone();
    db.close().unwrap();
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    let mut rng = SmallRng::seed_from_u64(3);
    let mut names = [0, 0];
    let step = (journal.len() - begun) / 100 + 1;
    for at in begun..=journal.len() {
        points.advance(at);
        let state = points.draw(&mut rng);
        let crashed = SimDisk::new(points.image(&state));
        let context = || format!("before operation {at}, {}", points.describe(&state));
        if at >= made {
            let is_there = |name: &&str| {
                let file = Path::new(DIR).join(format!("{name}.vdt"));
                crashed.files().contains(&file)
            };
            let there = ["a/wide", "a/renamed"].into_iter().find(is_there);
            let found = alone(&crashed, there.expect("the table's file"));
            let (mut found, rows) = found.unwrap_or_else(|| panic!("{}", context()));
            assert_eq!(rows, ROWS as u64, "{}", context());
            names[usize::from(found.name == def.name)] += 1;
            found.name = def.name.clone();
            assert_eq!(found, def, "{}", context());
        }
        if at % step == 0 {
            assert_eq!(damages(&crashed), [""; 0], "{}", context());
        }
    }
    assert!(names[0] > 0 && names[1] > 0, "{names:?}");
}
