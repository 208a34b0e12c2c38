//! Policy texts that several tests start from: two tenants with the same addresses.

/// Uplink, two tenant ports, one remote endpoint.
pub const FABRIC: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: rig}
spec:
  ports:
    - {name: uplink0, device: "memory:", mtu: 1600}
    - {name: red0, device: "memory:"}
    - {name: blue0, device: "memory:"}
    - {name: red1, device: "memory:"}
  uplink:
    port: uplink0
    addresses: [192.0.2.1/24]
  vteps:
    - {name: fabric, address: 192.0.2.2}
    - {name: other, address: 192.0.2.3}
"#;

/// Tenants red (two ports) and blue, each 10.1.0.10 here and 10.1.0.20 behind the endpoint `fabric`.
pub const TENANTS: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  gateway: {addresses: [10.1.0.1, "fd00::1"]}
  ports:
    - {port: red0, mac: "02:00:00:00:0a:10", addresses: [10.1.0.10, "fd00::10"], labels: {app: web}}
    - {port: red1, mac: "02:00:00:00:0a:11", addresses: [10.1.0.11]}
  remotes:
    - {name: peer, vtep: fabric, mac: "02:00:00:00:0a:20", addresses: [10.1.0.20, "fd00::20"]}
    - {name: far, vtep: other, mac: "02:00:00:00:0a:30", addresses: [10.1.0.30], prefixes: [10.9.0.0/16]}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: blue}
spec:
  vni: 200
  gateway: {addresses: [10.1.0.1]}
  ports:
    - {port: blue0, mac: "02:00:00:00:0b:10", addresses: [10.1.0.10]}
  remotes:
    - {name: peer, vtep: fabric, mac: "02:00:00:00:0b:20", addresses: [10.1.0.20]}
"#;

/// Both tenants may ping, use TCP 5201 and RoCEv2 towards their peers, and be pinged by them; TCP 9999 is denied.
pub const RULES: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red-egress}
spec:
  tenant: red
  egress:
    - action: Deny
      services: [{protocol: TCP, port: 9999}]
    - action: Accept
      to: [{ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: "fd00::/64"}}]
      services:
        - {protocol: ICMP}
        - {protocol: ICMPv6}
        - {protocol: TCP, port: 5201}
        - {protocol: UDP, port: 5201}
        - {protocol: RoCEv2}
  ingress:
    - action: Accept
      from: [{ipBlock: {cidr: 10.0.0.0/8}}]
      services: [{protocol: ICMP, type: 8}, {protocol: TCP, port: 80}, {protocol: RoCEv2, queuePairs: 16-31}]
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: blue-egress}
spec:
  tenant: blue
  egress:
    - action: Accept
      services: [{protocol: ICMP}, {protocol: TCP, port: 5201}, {protocol: RoCEv2}]
"#;

/// The three of them.
pub const DEMO: &[&str] = &[FABRIC, TENANTS, RULES];

/// An uplink and one tenant's port on these devices, for the built daemon.
pub fn one_tenant_fabric(uplink: &str, red: &str) -> String {
    format!(
        r#"apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {{name: test}}
spec:
  ports:
    - {{name: uplink0, device: "{uplink}", mtu: 1600}}
    - {{name: red0, device: "{red}", mtu: 1500}}
  uplink: {{port: uplink0, addresses: [192.0.2.1/24]}}
  vteps: [{{name: fabric, address: 192.0.2.2, mac: "02:00:00:00:0f:02"}}]
"#
    )
}

/// Tenant red of that fabric: [`scene::RED`](crate::scene::RED) here, its peer behind the endpoint.
pub const ONE_TENANT: &str = r#"apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports: [{port: red0, mac: "02:00:00:00:0a:10", addresses: [10.1.0.10]}]
  remotes: [{name: peer, vtep: fabric, mac: "02:00:00:00:0a:20", addresses: [10.1.0.20]}]
---
"#;
