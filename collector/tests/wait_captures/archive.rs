//! Files of a compressed archive, by their names: as much of the format as the recordings use.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

const BLOCK: usize = 512;

/// Reads a `.tar.gz` whose files are text.
pub(crate) fn files(path: &Path) -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    let mut files = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + BLOCK).filter(|header| header[0] != 0) {
        let field = |from: usize, to: usize| {
            let text = String::from_utf8_lossy(&header[from..to]);
            text.split('\0')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let size = usize::from_str_radix(&field(124, 136), 8)?;
        let body = bytes
            .get(at + BLOCK..at + BLOCK + size)
            .ok_or("a file is cut off")?;
        files.push((field(0, 100), String::from_utf8_lossy(body).into_owned()));
        at += BLOCK + size.div_ceil(BLOCK) * BLOCK;
    }
    Ok(files)
}
