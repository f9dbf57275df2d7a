//! Which side of a connection is late, from how long NCCL's proxies were in each state.

/// Share of a transfer that one state must take to be conclusive: more than half, so that at most one
/// is.
const MOSTLY: f64 = 0.5;

/// Seconds that the two proxies of one connection spent in each state, as NCCL's profiler (API version 3) names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EdgeTimes {
    /// Length of the transfer.
    pub seconds: f64,
    /// Sender, `SendGPUWait`: for its GPU's data.
    pub send_gpu_wait: f64,
    /// Sender, `SendRemFifoWait`: for room at the receiver.
    pub send_remote_fifo_wait: f64,
    /// Sender, `SendWait`: for the network to take what was posted.
    pub send_wait: f64,
    /// Receiver, `RecvWait`: for data of the network.
    pub recv_wait: f64,
    /// Receiver, `RecvGPUWait` and `RecvFlushWait`: for its GPU to take the data.
    pub recv_gpu_wait: f64,
}

/// The side that delays a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeVerdict {
    /// NIC, cable or switch between the two: a candidate for a link.
    Edge,
    /// The sender's GPU or host is late.
    Sender,
    /// The receiver's GPU, PCIe link or host is slow.
    Receiver,
    /// No state takes most of the time on both sides.
    Unclear,
}

impl EdgeTimes {
    /// The side that delays the transfer: both must agree.
    pub fn verdict(&self) -> EdgeVerdict {
        let mostly = |seconds: f64| seconds > MOSTLY * self.seconds;
        if mostly(self.send_wait) && mostly(self.recv_wait) {
            EdgeVerdict::Edge
        } else if mostly(self.send_gpu_wait) && mostly(self.recv_wait) {
            EdgeVerdict::Sender
        } else if mostly(self.send_remote_fifo_wait) && mostly(self.recv_gpu_wait) {
            EdgeVerdict::Receiver
        } else {
            EdgeVerdict::Unclear
        }
    }
}
