//! Places panels on Grafana's grid: left to right, then the next line.

use crate::panel::Panel;

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// Left upper corner of each panel.
pub(crate) fn places(panels: &[Panel]) -> Vec<(u64, u64)> {
    let (mut x, mut y, mut height) = (0, 0, 0);
    let mut places = Vec::new();
    for panel in panels {
        if x + panel.width > COLUMNS {
            (x, y, height) = (0, y + height, 0);
        }
        places.push((x, y));
        x += panel.width;
        height = height.max(panel.height);
    }
    places
}

#[test]
fn panels_fill_a_line_then_begin_the_next_below_the_tallest() {
    use crate::panel::Unit;
    let panel = |width, height| Panel::stat("a", Unit::Count).size(width, height);
    let places = places(&[panel(8, 4), panel(16, 9), panel(24, 1), panel(4, 4)]);
    assert_eq!(places, [(0, 0), (8, 0), (0, 9), (0, 10)]);
}
