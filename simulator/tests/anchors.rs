//! Coarse facts of public traces that the simulator relies on, tested if the recordings are beside the checkout.

use std::path::PathBuf;

use railscope_simulator::statistics::{Balance, median, quantile, rates, variation};

#[path = "../examples/anchors/traces.rs"]
mod traces;

/// The traces, or a message that there are none.
fn recordings(test: &str) -> Option<PathBuf> {
    let folder = traces::folder();
    if folder.is_none() {
        println!("{test}: skipped, no recordings beside this checkout");
    }
    folder
}

#[test]
fn a_busy_port_of_a_leaf_goes_on_and_off_and_reaches_its_wire() {
    let Some(folder) = recordings("ports") else {
        return;
    };
    let ports = traces::leaf(&folder, 1).expect("readable");
    let servers = ports.iter().filter(|(name, _)| traces::is_server(name));
    let mut fastest = 0.0_f64;
    let mut on_and_off = 0;
    for (_, counter) in servers {
        let read = counter.windows(2).filter(|pair| pair[0].0 > 300.0);
        let gigabits: Vec<f64> = read
            .map(|pair| 8e-9 * (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0))
            .collect();
        let most = quantile(&gigabits, 1.0).expect("some");
        let off = gigabits.iter().filter(|rate| **rate < 0.01 * most).count();
        let off = off as f64 / gigabits.len() as f64;
        on_and_off += usize::from(most > 20.0 && (0.1..0.98).contains(&off));
        fastest = fastest.max(most);
    }
    assert!(on_and_off >= 20, "{on_and_off} ports");
    assert!((150.0..210.0).contains(&fastest), "{fastest} Gb/s");
}

#[test]
fn uplinks_are_uneven_for_seconds_and_even_for_minutes() {
    let Some(folder) = recordings("uplinks") else {
        return;
    };
    let ports = traces::leaf(&folder, 1).expect("readable");
    let uplinks: Vec<_> = ports
        .iter()
        .filter(|(name, _)| traces::is_uplink(name))
        .collect();
    assert_eq!(uplinks.len(), 30);
    let unevenness = |window: f64| {
        let all: Vec<Vec<f64>> = uplinks
            .iter()
            .map(|(_, counter)| rates(counter, 300.0, traces::RECORDED_SECONDS - 10.0, window))
            .collect();
        let of = |at| Balance::of(&all.iter().map(|port| port[at]).collect::<Vec<_>>());
        let balances: Vec<f64> = (0..all[0].len())
            .filter_map(of)
            .map(|b| b.variation)
            .collect();
        median(&balances).expect("loaded")
    };
    assert!(unevenness(2.0) > 0.3);
    assert!(unevenness(1190.0) < 0.1);
}

#[test]
fn steps_vary_by_thousandths_and_never_get_much_shorter() {
    let Some(folder) = recordings("steps") else {
        return;
    };
    let steps = traces::logged_steps(&folder).expect("readable");
    let usual = median(&steps).expect("some");
    let training: Vec<f64> = steps
        .iter()
        .copied()
        .filter(|step| *step < 1.5 * usual)
        .collect();
    assert_eq!((steps.len(), steps.len() - training.len()), (2435, 4));
    assert!((0.002..0.006).contains(&variation(&training).expect("some")));
    assert!(quantile(&training, 0.0).expect("some") > 0.99 * usual);
}

#[test]
fn a_slow_worker_computes_twice_as_long_as_its_peers_and_stretches_every_step() {
    let Some(folder) = recordings("jobs") else {
        return;
    };
    for (name, ranks, slow) in [("AR", 16, Some((0, 0))), ("ST", 8, None)] {
        let job = traces::job(&folder, name).expect("readable");
        assert_eq!(job.compute.len(), ranks);
        assert_eq!(job.forward.len(), ranks);
        let peers = |stage: i8| {
            let own = job.compute.iter().filter(|((of, _), _)| *of == stage);
            median(
                &own.filter_map(|(_, steps)| median(steps))
                    .collect::<Vec<_>>(),
            )
            .expect("some")
        };
        for (place, steps) in &job.compute {
            let ratio = median(steps).expect("some") / peers(place.0);
            assert_eq!(
                ratio > 1.5,
                Some(*place) == slow,
                "{name} {place:?}: {ratio}"
            );
        }
        assert!(variation(&job.steps).expect("some") < 0.03);
    }
}
