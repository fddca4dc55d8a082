//! The XDP program: which frames the stack takes, as BPF instructions made here.
//!
//! It takes TCP segments to the server's addresses and ports, and what keeps these addresses
//! reachable: ARP requests, neighbour solicitations and echo requests. All else goes on to the
//! kernel: VLANs, fragments, other addresses, other ports, answers to the kernel's own questions.

use std::net::IpAddr;

/// One instruction, as bpf(2) has it: code, registers, offset, immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// `XDP_PASS`: the kernel goes on with the frame.
pub(super) const PASS: i32 = 2;

/// What the program takes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ports: Vec<u16>,
    /// Descriptor of the map of sockets by receive queue.
    pub(super) sockets: i32,
    /// What becomes of a taken frame if its queue has no socket.
    pub(super) without_socket: i32,
}

/// Registers. R1 to R5 are arguments of calls, and lost by them.
const R0: u8 = 0;
const R1: u8 = 1;
/// Begin of the frame.
const R2: u8 = 2;
/// End of the frame.
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
/// The context (`struct xdp_md`).
const R6: u8 = 6;

/// Instruction codes (`linux/bpf_common.h`, `linux/bpf.h`).
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xBF;
const MOVE_IMMEDIATE: u8 = 0xB7;
const ADD: u8 = 0x0F;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const JUMP: u8 = 0x05;
const JUMP_GREATER: u8 = 0x2D;
const JUMP_EQUAL: u8 = 0x16;
const JUMP_NOT_EQUAL: u8 = 0x56;
const JUMP_ANY_BIT: u8 = 0x46;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source register of a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// A place to jump to, forward only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Pass,
    Take,
    Arp,
    Ipv4,
    Ipv4Ours,
    Ipv6,
    Ipv6Ours,
    Ipv6Solicitation,
    /// The port is in R4.
    Port,
    Next(usize),
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    /// `to = *(from + offset)`
    fn load(&mut self, code: u8, to: u8, from: u8, offset: i16) {
        self.put(code, to, from, offset, 0);
    }

    /// Goes to `label` if the comparison of `register` with a value holds.
    fn jump(&mut self, code: u8, register: u8, value: u32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(code, register, 0, 0, value.cast_signed());
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    /// Goes to `Pass` unless the frame has `bytes` bytes. The verifier then allows to load them.
    fn demand(&mut self, bytes: i32) {
        self.put(MOVE, R5, R2, 0, 0); //                   r5 = data
        self.put(ADD_IMMEDIATE, R5, 0, 0, bytes); //       r5 += bytes
        self.jumps.push((self.instructions.len(), Label::Pass));
        self.put(JUMP_GREATER, R5, R3, 0, 0); //           if r5 > data_end goto pass
    }

    /// Where jumps lead is known at the end.
    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in &self.jumps {
            let target = self.labels.iter().find(|(named, _)| named == label).map_or(0, |(_, target)| *target);
            if let Some(jump) = self.instructions.get_mut(*at) {
                jump.offset = i16::try_from(target as i64 - *at as i64 - 1).unwrap_or(0);
            }
        }
        self.instructions
    }
}

/// The value of two bytes of a frame as the program loads them.
fn half(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// A program that takes nothing: all goes on to the kernel.
pub(super) fn pass_all() -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.put(MOVE_IMMEDIATE, R0, 0, 0, PASS); //              r0 = XDP_PASS
    a.put(EXIT, 0, 0, 0, 0);
    a.finish()
}

impl Filter {
    /// The program. Offsets are those of an Ethernet frame without VLAN.
    pub(super) fn program(&self) -> Vec<Instruction> {
        let mut a = Assembler::default();
        a.put(MOVE, R6, R1, 0, 0); //                      r6 = ctx
        a.load(LOAD_WORD, R2, R6, 0); //                   r2 = ctx->data
        a.load(LOAD_WORD, R3, R6, 4); //                   r3 = ctx->data_end
        a.demand(14);
        a.load(LOAD_HALF, R4, R2, 12); //                  r4 = ethertype
        // The verifier refuses instructions that nothing leads to.
        let (has_ipv4, has_ipv6) =
            (self.addresses.iter().any(IpAddr::is_ipv4), self.addresses.iter().any(IpAddr::is_ipv6));
        if has_ipv4 {
            a.jump(JUMP_EQUAL, R4, half(0x0806), Label::Arp);
            a.jump(JUMP_EQUAL, R4, half(0x0800), Label::Ipv4);
        }
        if has_ipv6 {
            a.jump(JUMP_EQUAL, R4, half(0x86DD), Label::Ipv6);
        }
        a.jump(JUMP, 0, 0, Label::Pass);
        if has_ipv4 {
            self.arp(&mut a);
            self.ipv4(&mut a);
        }
        if has_ipv6 {
            self.ipv6(&mut a);
        }
        a.label(Label::Port);
        for port in &self.ports {
            a.jump(JUMP_EQUAL, R4, half(*port), Label::Take);
        }
        a.label(Label::Pass);
        a.put(MOVE_IMMEDIATE, R0, 0, 0, PASS); //          r0 = XDP_PASS
        a.put(EXIT, 0, 0, 0, 0);
        a.label(Label::Take);
        a.put(LOAD_MAP, R1, MAP_DESCRIPTOR, 0, self.sockets); // r1 = sockets
        a.put(0, 0, 0, 0, 0); //                           (second half)
        a.load(LOAD_WORD, R2, R6, 16); //                  r2 = ctx->rx_queue_index
        a.put(MOVE_IMMEDIATE, R3, 0, 0, self.without_socket);
        a.put(CALL, 0, 0, 0, REDIRECT_MAP); //             r0 = bpf_redirect_map(r1, r2, r3)
        a.put(EXIT, 0, 0, 0, 0);
        a.finish()
    }

    fn arp(&self, a: &mut Assembler) {
        a.label(Label::Arp);
        a.demand(42);
        a.load(LOAD_HALF, R4, R2, 20); //                  r4 = operation
        a.jump(JUMP_NOT_EQUAL, R4, half(1), Label::Pass); // a request
        a.load(LOAD_WORD, R4, R2, 38); //                  r4 = target's address
        self.compare_ipv4(a, Label::Take);
    }

    fn compare_ipv4(&self, a: &mut Assembler, ours: Label) {
        for address in &self.addresses {
            if let IpAddr::V4(address) = address {
                a.jump(JUMP_EQUAL, R4, u32::from_ne_bytes(address.octets()), ours);
            }
        }
        a.jump(JUMP, 0, 0, Label::Pass);
    }

    fn ipv4(&self, a: &mut Assembler) {
        a.label(Label::Ipv4);
        a.demand(34);
        a.load(LOAD_WORD, R4, R2, 30); //                  r4 = destination
        self.compare_ipv4(a, Label::Ipv4Ours);
        a.label(Label::Ipv4Ours);
        a.load(LOAD_HALF, R4, R2, 20); //                  r4 = flags and fragment offset
        a.jump(JUMP_ANY_BIT, R4, half(0x3FFF), Label::Pass); // a fragment
        a.load(LOAD_BYTE, R4, R2, 14); //                  r4 = version and header length
        a.put(AND_IMMEDIATE, R4, 0, 0, 0x0F);
        a.put(SHIFT_LEFT, R4, 0, 0, 2); //                 r4 = length of the header, at most 60
        a.load(LOAD_BYTE, R0, R2, 23); //                  r0 = protocol
        a.put(ADD, R2, R4, 0, 0); //                       r2 = data + length
        a.demand(14 + 4);
        a.load(LOAD_HALF, R4, R2, 14 + 2); //              r4 = destination port
        a.jump(JUMP_EQUAL, R0, 6, Label::Port); //         TCP
        a.jump(JUMP_NOT_EQUAL, R0, 1, Label::Pass); //     ICMP
        a.load(LOAD_BYTE, R4, R2, 14); //                  r4 = type
        a.jump(JUMP_EQUAL, R4, 8, Label::Take); //         an echo request
        a.jump(JUMP, 0, 0, Label::Pass);
    }

    fn ipv6(&self, a: &mut Assembler) {
        a.label(Label::Ipv6);
        a.demand(58);
        a.load(LOAD_BYTE, R0, R2, 20); //                  r0 = next header
        self.compare_ipv6(a, 38, Label::Ipv6Ours, 0);
        // A question for the owner of an address goes to a group of addresses.
        a.jump(JUMP_EQUAL, R0, 58, Label::Ipv6Solicitation);
        a.jump(JUMP, 0, 0, Label::Pass);
        a.label(Label::Ipv6Ours);
        a.load(LOAD_HALF, R4, R2, 56); //                  r4 = destination port
        a.jump(JUMP_EQUAL, R0, 6, Label::Port); //         TCP
        a.jump(JUMP_NOT_EQUAL, R0, 58, Label::Pass); //    ICMPv6
        a.load(LOAD_BYTE, R4, R2, 54); //                  r4 = type
        a.jump(JUMP_EQUAL, R4, 128, Label::Take); //       an echo request
        a.label(Label::Ipv6Solicitation);
        a.load(LOAD_BYTE, R4, R2, 54); //                  r4 = type
        a.jump(JUMP_NOT_EQUAL, R4, 135, Label::Pass); //   a neighbour solicitation
        a.demand(78);
        self.compare_ipv6(a, 62, Label::Take, self.addresses.len());
        a.jump(JUMP, 0, 0, Label::Pass);
    }

    /// Goes to `ours` if one of the addresses stands at `offset`.
    fn compare_ipv6(&self, a: &mut Assembler, offset: i16, ours: Label, numbered_from: usize) {
        for (number, address) in self.addresses.iter().enumerate() {
            let IpAddr::V6(address) = address else { continue };
            let next = Label::Next(numbered_from + number);
            for (at, word) in (offset..).step_by(4).zip(address.octets().as_chunks::<4>().0) {
                a.load(LOAD_WORD, R4, R2, at);
                a.jump(JUMP_NOT_EQUAL, R4, u32::from_ne_bytes(*word), next);
            }
            a.jump(JUMP, 0, 0, ours);
            a.label(next);
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/xdp/filter.rs"]
mod tests;
