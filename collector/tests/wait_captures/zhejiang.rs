//! Ports of a real leaf: what each sent since its last reading.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// Milliseconds and bytes sent since the reading before.
type Readings = Vec<(u64, f64)>;

/// What each port sent, by its name.
pub(crate) fn ports(path: &Path) -> Result<BTreeMap<String, Readings>, Box<dyn std::error::Error>> {
    let mut text = String::new();
    MultiGzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    let mut ports: BTreeMap<String, Readings> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [moment, port, _, _, _, sent] = cells[..] else {
            return Err(format!("found {line:?}, expected six cells").into());
        };
        let readings = ports.entry(port.to_owned()).or_default();
        readings.push((moment.parse()?, sent.parse()?));
    }
    Ok(ports)
}

/// What a port can send, with the error of its clock and of the two readings' times.
pub(crate) fn wire_bytes_per_second(port: &str) -> f64 {
    let gigabits = if port.starts_with("TwoHundredGigE") {
        200.0
    } else {
        400.0
    };
    gigabits / 8.0 * 1e9 * 1.05
}
