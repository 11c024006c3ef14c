// Reads a raw table and a step table of "narrowgauge golden export" with std alone, and compares the two: every bfloat16
// is a float32 whose lower half is zero, so the tables of both sources must give the same codes.
//
//   rustc -O --edition 2021 table.rs && ./table vectors/raw/cast-ocp_saturate-float8_e4m3fn
use std::{env, fs, io, path::Path, process};

/// Every code of a 16-bit source, by pattern.
fn codes(folder: &Path) -> io::Result<Vec<u8>> {
    fs::read(folder.join("bfloat16.codes.u8"))
}

/// The first pattern of each run of float32 inputs with one code, ascending from 0.
fn firsts(folder: &Path) -> io::Result<Vec<u32>> {
    let bytes = fs::read(folder.join("float32.first.u32"))?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// The expected code of a float32 pattern: that of the last run that begins at or before it.
fn expected(first: &[u32], code: &[u8], pattern: u32) -> u8 {
    code[first.partition_point(|&start| start <= pattern) - 1]
}

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).expect("usage: table FOLDER");
    let folder = Path::new(&folder);
    let (every, first, code) = (codes(folder)?, firsts(folder)?, fs::read(folder.join("float32.code.u8"))?);
    let wrong = (0..every.len()).filter(|&i| expected(&first, &code, (i as u32) << 16) != every[i]).count();
    println!("{} of {} differ", wrong, every.len());
    process::exit(i32::from(wrong > 0 || every.len() != 1 << 16));
}
