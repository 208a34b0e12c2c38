//! What is tested with one worker elsewhere. Here it is run again with several, in processes of their own.

#[path = "../bugs.rs"]
mod bugs;
#[path = "../encap.rs"]
mod encap;
#[path = "../flows.rs"]
mod flows;
#[path = "../gateway.rs"]
mod gateway;
#[path = "../hosts.rs"]
mod hosts;
#[path = "../isolation.rs"]
mod isolation;
#[path = "../neighbours.rs"]
mod neighbours;
#[path = "../state.rs"]
mod state;
