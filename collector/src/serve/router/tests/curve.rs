//! The deciding counter on the page of an incident, the heat map of a large fabric, and how large pages are.

use super::*;

/// What the issue allows for the overview at 256 GPUs.
const MOST_BYTES: usize = 60_000;

async fn incidents(at: &str) -> Vec<String> {
    let (_, list) = get_text(format!("{at}/api/v1/incidents")).await;
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let all = list["incidents"].as_array().expect("a list");
    all.iter()
        .map(|one| one["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn the_page_of_an_incident_plots_the_deciding_counter_and_the_api_has_its_numbers() {
    let at = serve(small()).await;
    let mut drawn = 0;
    for id in incidents(&at).await {
        let (_, detail) = get_text(format!("{at}/api/v1/incidents/{id}")).await;
        let detail: serde_json::Value = serde_json::from_str(&detail).expect("JSON");
        let (_, page) = get_text(format!("{at}/incidents/{id}")).await;
        let curve = &detail["curve"];
        assert_eq!(
            curve.is_object(),
            page.contains("<svg class=\"plot\""),
            "{detail}"
        );
        let columns = ["at", "value", "p10", "median", "p90"].map(|name| &curve[name]);
        let lengths = columns.map(|column| column.as_array().map_or(0, Vec::len));
        assert!(
            lengths.iter().all(|length| *length == lengths[0]),
            "{curve}"
        );
        drawn += usize::from(lengths[0] > 1);
        for never in ["style=\"", "javascript:", "onload", "NaN"] {
            assert!(!page.contains(never), "{never}: {page}");
        }
    }
    assert_eq!(drawn, 2, "the port without a link and the GPU");
}

#[tokio::test]
async fn the_overview_and_the_pages_of_incidents_are_small_at_256_gpus() {
    let cluster = Cluster {
        nodes: 32,
        rails: 8,
        nodes_in_unit: 16,
        spines: 4,
    };
    let at = serve(faulty(cluster)).await;
    let (_, page) = get_text(format!("{at}/")).await;
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    let mut largest = 0;
    for id in incidents(&at).await {
        let (_, page) = get_text(format!("{at}/incidents/{id}")).await;
        largest = largest.max(page.len());
    }
    assert!(largest <= MOST_BYTES, "{largest} bytes");
}

#[tokio::test]
async fn leaves_of_more_units_than_rows_are_a_heat_map_with_marks_and_links() {
    // Units of two nodes, so that the test is fast: only the number of leaves matters.
    let cluster = Cluster {
        nodes: 130,
        rails: 2,
        nodes_in_unit: 2,
        spines: 2,
    };
    let lost: &[(&str, u16)] = &[("leaf-03", 41), ("leaf-03", 42)];
    let at = serve(cluster.watch(|_, _, page| Some(page), lost, now)).await;
    let (_, page) = get_text(format!("{at}/")).await;
    let map = page.split("<table class=\"heat\">").nth(1).expect("a map");
    let map = map.split("</table>").next().expect("a table");
    assert_eq!(map.matches("<svg class=\"cells\"").count(), 3 * 2, "{map}");
    assert!(map.contains("aria-label=\"Rail 0, "), "{map}");
    assert!(map.contains("<a href=\"incidents/"), "{map}");
    assert!(map.len() < 20_000, "{} bytes", map.len());
}
