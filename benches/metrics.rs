//! What a count costs on the way of a request: nanoseconds, the least of several runs.
//!
//! `cargo bench --bench metrics` prints them.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use simse::base::metrics::meters::Meters;
use simse::base::metrics::{Counter, Histogram, Page, QUICK};

const ROUNDS: u32 = 1_000_000;

fn least(name: &str, work: impl Fn(u32)) {
    let run = || {
        let began = Instant::now();
        (0..ROUNDS).for_each(&work);
        began.elapsed()
    };
    let least = (0..9).map(|_| run()).min().unwrap_or(Duration::ZERO);
    println!("{name}: {:.1} ns", least.as_secs_f64() * 1e9 / f64::from(ROUNDS));
}

fn main() {
    let counter = Counter::default();
    least("a counter", |_| black_box(&counter).count());
    let histogram = Histogram::new(&QUICK);
    least("a duration", |n| black_box(&histogram).took(Duration::from_nanos(u64::from(n) * 3_000)));
    let meters = Meters::default();
    for n in 0..40 {
        meters.routes.of(&format!("/route/{n}"));
    }
    least("a request (route, status, duration)", |n| {
        let route = black_box(&meters).routes.of("/route/17");
        route.answered("POST", 201, Duration::from_nanos(u64::from(n) * 1_000));
    });
    least("a tool call", |n| {
        let tool = black_box(&meters).tools.of("fs_read");
        tool.ok.count();
        tool.seconds.took(Duration::from_nanos(u64::from(n) * 1_000));
    });
    let began = Instant::now();
    let mut page = Page::default();
    meters.write(&mut page);
    println!("the page of 40 routes: {:.1} us, {} bytes", began.elapsed().as_secs_f64() * 1e6, page.into_text().len());
}
