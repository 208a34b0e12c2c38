//! A card with the pods that a case needs, and the question whether one of them reaches another.

use std::{fmt::Write, fs, net::IpAddr, path::PathBuf};

use policy::{Parsed, Source};
use program::{Flow, Ingress, PortId, Program, Service, VtepId};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

/// What is outside of every tenant's card: hosts behind the fabric.
pub const OUTSIDE: &str = "outside";
const OUTSIDE_ADDRESS: &str = "203.0.113.7";

/// One tenant: its name, its labels, and its pods with theirs.
pub struct Tenant {
    pub name: &'static str,
    pub labels: &'static str,
    pub pods: &'static [(&'static str, &'static str)],
}

/// The folder of policies in the corpus; `None`, and a line that says so, when it is not there.
pub fn corpus() -> Option<PathBuf> {
    let given = std::env::var_os("FLOODWAY_CORPUS").map(PathBuf::from);
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found =
        given.or_else(|| here.ancestors().map(|up| up.join("shared/corpus")).find(|path| path.is_dir()));
    let folder = found.map(|path| path.join("policy")).filter(|path| path.is_dir());
    if folder.is_none() {
        eprintln!("skipped: no shared/corpus above {}", here.display());
    }
    folder
}

pub fn read(folder: &std::path::Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Documents in that world. Without errors, or all of them.
pub fn parse(tenants: &[Tenant], documents: &[String]) -> Result<Parsed, String> {
    let mut sources = vec![Source { name: "world.yaml".into(), bytes: text(tenants).into() }];
    for (number, document) in documents.iter().enumerate() {
        sources.push(Source { name: format!("document{number}.yaml"), bytes: document.clone().into() });
    }
    policy::parse(&sources).map_err(|errors| errors.render(&sources))
}

fn text(tenants: &[Tenant]) -> String {
    let mut ports = String::new();
    let mut documents = String::new();
    let mut count = 0;
    for (number, tenant) in tenants.iter().enumerate() {
        write!(
            documents,
            "---\n{HEAD}kind: Tenant\nmetadata: {{name: {}, labels: {{{}}}}}\nspec:\n  vni: {}\n  remotes: [{{vtep: far, mac: 02:00:00:00:ff:01, addresses: [], prefixes: [203.0.113.0/24]}}]\n  ports:\n",
            tenant.name,
            tenant.labels,
            number + 1
        )
        .unwrap();
        for (name, labels) in tenant.pods {
            count += 1;
            let port = format!("{}-{name}", tenant.name);
            writeln!(ports, "    - {{name: {port}, device: 'memory:'}}").unwrap();
            writeln!(
                documents,
                "    - {{port: {port}, mac: 02:00:00:00:00:{count:02x}, addresses: [10.0.0.{count}], labels: {{{labels}}}, namedPorts: [{{name: serve-80-tcp, protocol: TCP, port: 80}}]}}"
            )
            .unwrap();
        }
    }
    format!(
        "{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports:\n    - {{name: up, device: 'memory:', mtu: 9000}}\n{ports}  uplink: {{port: up, addresses: [192.0.2.1/24]}}\n  vteps: [{{name: far, address: 192.0.2.2}}]\n{documents}"
    )
}

/// True when the program lets a flow of the first tenant's `from` through to `to`, which are pods or [`OUTSIDE`].
pub fn is_allowed(program: &Program, tenant: &str, from: &str, to: &str, service: Service) -> bool {
    let place = |pod: &str| -> (Ingress, IpAddr) {
        if pod == OUTSIDE {
            return (Ingress::Vtep(VtepId(0)), OUTSIDE_ADDRESS.parse().unwrap());
        }
        // A pod of another tenant is named with its tenant.
        let name = if pod.contains('/') { pod.replace('/', "-") } else { format!("{tenant}-{pod}") };
        let index =
            program.devices.iter().position(|device| device.name == name).unwrap_or_else(|| panic!("{name}"));
        let port = PortId(index as u16);
        (Ingress::Port(port), program.port(port).unwrap().addresses[0])
    };
    let ((ingress, src), (_, dst)) = (place(from), place(to));
    let tenant = program.tenants.iter().flatten().find(|own| own.name == tenant).unwrap().id;
    program.judge(&Flow { tenant, ingress, src, dst, service, src_port: 40_000 }).is_ok()
}
