//! A network for nodes alone: each in a network namespace of its own, on a bridge that has one, too. There a way can be cut as on a true
//! network, in silence and in the kernel, or be slow.
//!
//! It takes root, and `ip` and `iptables`. Where something is missing, the tests that need it say so and pass. Names have the
//! process's number in them, and all of it is removed when this is dropped. The bridge stands in a namespace, too: so what the machine
//! forwards, and what not, does not matter.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::crash::say;

/// The port on which each node listens, at an address of its own.
pub const PORT: u16 = 4_100;

/// Namespaces and what joins them.
pub struct Net {
    /// Begins the names of the namespaces.
    name: String,
    /// The end of the bridge where the test is.
    here: String,
    /// What all its addresses begin with.
    prefix: [u8; 3],
    nodes: usize,
}

/// Runs a program. What it says when it fails is the error.
fn run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let output = command.args(words).stdin(Stdio::null()).output().map_err(|cause| format!("`{line}`: {cause}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Net {
    /// For so many nodes. None: this machine does not allow it.
    pub fn start(nodes: usize) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Addresses for private use that few have. Processes side by side have numbers side by side.
        let [_, _, high, low] = (process * 8 + nth).to_be_bytes();
        let net = Self {
            name: format!("simse-{process}-{nth}"),
            here: format!("sm{process:x}-{nth}"),
            prefix: [10, high | 0x80, low],
            nodes,
        };
        match net.begin() {
            Ok(()) => Some(net),
            Err(why) => {
                say(&format!(
                    "left out: no network of its own can be made for nodes (it takes root, `ip` and `iptables`): {why}"
                ));
                None
            }
        }
    }

    fn begin(&self) -> Result<(), String> {
        let (hub, here) = (self.hub(), &self.here);
        run(&format!("ip netns add {hub}"))?;
        run(&format!("ip -n {hub} link add bridge0 type bridge"))?;
        run(&format!("ip -n {hub} link set bridge0 up"))?;
        run(&format!("ip link add {here} type veth peer name out0 netns {hub}"))?;
        run(&format!("ip -n {hub} link set out0 master bridge0 up"))?;
        run(&format!("ip addr add {}/24 dev {here}", self.host()))?;
        run(&format!("ip link set {here} up"))?;
        for number in 0..self.nodes {
            let inside = self.inside(number);
            run(&format!("ip netns add {inside}"))?;
            run(&format!("ip -n {hub} link add n{number} type veth peer name eth0 netns {inside}"))?;
            run(&format!("ip -n {hub} link set n{number} master bridge0 up"))?;
            run(&format!("ip -n {inside} addr add {}/24 dev eth0", self.node(number)))?;
            run(&format!("ip -n {inside} link set eth0 up"))?;
            run(&format!("ip -n {inside} link set lo up"))?;
            self.filter(number, "-L -n")?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    /// The namespace of a node.
    pub fn inside(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [one, two, three] = self.prefix;
        Ipv4Addr::new(one, two, three, last)
    }

    /// Where the test can be reached.
    pub fn host(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Where a node can be reached.
    pub fn node(&self, number: usize) -> Ipv4Addr {
        self.address(u8::try_from(number + 2).expect("few"))
    }

    fn filter(&self, number: usize, rule: &str) -> Result<(), String> {
        // Tests side by side wait for one another.
        run(&format!("ip netns exec {} iptables -w 10 {rule}", self.inside(number)))
    }

    fn drop_all(&self, number: usize, rules: [String; 2]) {
        for rule in rules {
            self.filter(number, &format!("{rule} -j DROP")).expect("a rule");
        }
    }

    /// Nothing passes any more between two nodes; neither is told.
    pub fn part(&self, one: usize, two: usize) {
        let other = self.node(two);
        self.drop_all(one, [format!("-A INPUT -s {other}"), format!("-A OUTPUT -d {other}")]);
    }

    /// Nothing passes any more between a node and a port of this place; neither is told.
    pub fn cut(&self, number: usize, port: u16) {
        let host = self.host();
        let [from, to] = ["-A INPUT -p tcp -s", "-A OUTPUT -p tcp -d"];
        self.drop_all(number, [format!("{from} {host} --sport {port}"), format!("{to} {host} --dport {port}")]);
    }

    /// All that was cut at a node is whole again.
    pub fn mend(&self, number: usize) {
        self.filter(number, "-F").expect("the rules of a namespace");
    }

    /// From now on all that a node sends arrives so much later. False: the kernel cannot do that.
    pub fn slow(&self, number: usize, delay: Duration) -> bool {
        let (inside, delay_ms) = (self.inside(number), delay.as_millis());
        let slowed = run(&format!("tc -n {inside} qdisc add dev eth0 root netem delay {delay_ms}ms"));
        if let Err(why) = &slowed {
            say(&format!("left out: this kernel makes no network slow: {why}"));
        }
        slowed.is_ok()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Some of it may never have been made.
        let _ = run(&format!("ip link del {}", self.here));
        for name in (0..self.nodes).map(|number| self.inside(number)).chain([self.hub()]) {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}
