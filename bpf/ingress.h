/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program behind XDP, at the tc hook (TCX), for connections whose cookie came back. It gives the kernel the data that
 * the kernel would have kept of the SYN (bpf_sk_assign_tcp_reqsk, Linux 6.9). It examines only packets with a proved
 * address, to ports whose protection uses mode host.
 */
#pragma once

#include "clock.h"
#include "cookie.h"
#include "count.h"
#include "decision.h"
#include "flow.h"
#include "kernelcookie.h"
#include "l4.h"
#include "packet.h"
#include "parse.h"
#include "protection.h"
#include "skb.h"
#include "synack.h"
#include "verifier.h"

/*
 * A byte for each TCP port: the number, from 1 on, of its protection if that uses METHOD_HOST, or else 0.
 * internal/compile/xdp/protect.go fills the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64); /* PORT_UDP bytes when there is such a protection */
} host_ports SEC(".maps");

/* The description of a SYN for bpf_sk_assign_tcp_reqsk(): include/net/tcp.h of the kernel. */
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale; /* ours */
	__u8 snd_wscale; /* the client's */
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

/* The kernel's struct, of which only pointers are passed on. Tools that link the program need a definition, not a declaration. */
struct sock {
};

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs,
				   int attrs__sz) __ksym __weak;

enum {
	NO_MEMORY = 12,   /* ENOMEM */
	PROVED_WAIT = 16, /* seconds in which the client has sent a lost segment again */
};

/* Nanoseconds for which no SYN is answered after the kernel refused a connection. */
#define REFUSED_TIME 10000000000ULL

/* The number, from 1 on, of the protection of a TCP port; 0 for none. */
static __always_inline __u32 host_protection(__u32 port)
{
	__u32 first = 0;
	__u8 *by_port = bpf_map_lookup_elem(&host_ports, &first);

	/*
	 * LLVM knows that the value fits 16 bits and removes the comparison. The verifier needs it, because it forgets the
	 * bounds of a value whose byte order was changed (BPF_END in check_alu_op of kernel/bpf/verifier.c, Linux 6.12).
	 */
	port = opaque(port);
	return by_port && port < PORT_UDP ? by_port[port] : 0;
}

/* Reads the timestamps of a segment. Returns whether it has them. A global function, like flow_state(). */
__noinline __u32 skb_timestamps(struct __sk_buff *skb, struct packet *p, struct syn_options *o)
{
	__u8 option[10];
	__u32 at;

	if (!p || !o)
		return 0;
	at = p->l4 + sizeof(struct tcphdr);
	for (int i = 0; i < MAX_OPTIONS; i++) {
		if (at >= p->payload || bpf_skb_load_bytes(skb, at, option, 1) || !option[0])
			break;
		if (option[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (at + 2 > p->payload || bpf_skb_load_bytes(skb, at, option, 2) || option[1] < 2)
			break;
		if (option[0] == TCP_OPTION_TIMESTAMPS && option[1] == sizeof(option)) {
			if (at + sizeof(option) > p->payload || bpf_skb_load_bytes(skb, at, option, sizeof(option)))
				break;
			o->timestamps = 1;
			o->tsval = read_word(option + 2);
			o->tsecr = read_word(option + 6);
		}
		at += option[1];
	}
	return o->timestamps;
}

/* Fills in the description of the SYN from the options that the cookie encodes. */
static __always_inline void describe_syn(struct bpf_tcp_req_attrs *a, struct syn_options *o, __u32 wscale)
{
	a->mss = o->mss;
	a->wscale_ok = o->wscale != WSCALE_NONE;
	if (a->wscale_ok) {
		a->rcv_wscale = wscale;
		a->snd_wscale = o->wscale;
	}
	a->sack_ok = o->sack;
	a->ecn_ok = o->ecn;
	a->tstamp_ok = o->timestamps;
	a->rcv_tsval = o->tsval;
	a->rcv_tsecr = o->tsecr;
}

/*
 * Records that the kernel refuses connections, so that XDP stops answering for it. The reason may be a listener with
 * MPTCP, or an option that was offered and that this host has switched off. ENOMEM says nothing about the next connection.
 */
static __always_inline void refused(__u32 number, int error)
{
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &number);
	__u64 now = coarse_time();

	if (!s || error == -NO_MEMORY)
		return;
	s->refusals++;
	s->refusal = -error;
	if (read_once(&s->refused_until) <= now)
		s->refused_until = now + REFUSED_TIME;
}

/*
 * Whether the kernel recognizes a packet as IP. It does not when a VLAN tag is still in the data, as in frames with two
 * tags. It refuses only such packets, which says nothing about others (bpf_sk_assign_tcp_reqsk() of net/core/filter.c).
 */
static __always_inline bool is_ip(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6);
}

/*
 * Gives the kernel the connection of a segment whose cookie is right. If the listening socket's queue is full, the
 * kernel drops the segment, and the next one comes here. Returns a verdict.
 */
static __always_inline int give_connection(struct __sk_buff *skb, struct bpf_sock *sk, struct syn_options *o,
					   __u32 number)
{
	struct protection *pr = bpf_map_lookup_elem(&protections, &number);
	struct bpf_tcp_req_attrs attrs = {};
	struct tcp_sock *listener = bpf_skc_to_tcp_sock(sk);
	int error;

	if (!pr || !listener)
		return TCX_DROP;
	describe_syn(&attrs, o, pr->wscale);
	error = bpf_sk_assign_tcp_reqsk(skb, (struct sock *)listener, &attrs, sizeof(attrs));
	if (!error)
		return TCX_NEXT;
	if (is_ip(skb) && *(volatile __u32 *)&sk->state == BPF_TCP_LISTEN)
		refused(number, error);
	return TCX_DROP;
}

/*
 * Queues a segment again, behind the segments that the kernel took from the device in the same batch. All of a batch
 * come here before the kernel acts on the first. So an ACK just before may be about to create the connection: a second
 * attempt would fail, and the data would be lost until the client sends it again.
 */
static __always_inline int reinject(struct __sk_buff *skb)
{
	skb->tc_index = REINJECTED;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * The verdict for a segment without a valid cookie that a listening socket would get. Soon after the proof, the ACK
 * with the cookie was lost: drop. Later, the kernel has started another connection with a cookie of its own: pass.
 */
static __always_inline int judge_unproved(struct packet *p)
{
	if (p->flow_age < PROVED_WAIT)
		return TCX_DROP;
	flow_set(p, FLOW_NONE);
	return TCX_NEXT;
}

/* Replaces the 32 bits at an offset of the TCP header, and corrects its checksum. Returns whether it did. */
static __always_inline bool replace_word(struct __sk_buff *skb, struct packet *p, __u32 at, __be32 from, __be32 to)
{
	return !bpf_l4_csum_replace(skb, p->l4 + offsetof(struct tcphdr, check), from, to, sizeof(to)) &&
	       !bpf_skb_store_bytes(skb, p->l4 + at, &to, sizeof(to), 0);
}

/*
 * Turns a segment into a reset from the client with this sequence number, and queues the original segment behind it.
 * The reset has no timestamps: the kernel does not know those of the cookie (tcp_check_req() and
 * tcp_timewait_state_process() of net/ipv4/tcp_minisocks.c).
 */
static __always_inline int reset_before(struct __sk_buff *skb, struct packet *p, struct tcphdr *tcp, __u32 seq)
{
	const __u32 at = offsetof(struct tcphdr, window) - sizeof(__u16); /* of data offset, flags and window */
	__be32 flags, reset;

	skb->tc_index = REINJECTED;
	if (bpf_skb_load_bytes(skb, p->l4 + at, &flags, sizeof(flags)) ||
	    bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		return TCX_DROP;
	reset = (flags & bpf_htonl(0xffff)) | bpf_htonl((sizeof(struct tcphdr) / 4 << 12 | TCP_RST) << 16);
	if (!replace_word(skb, p, at, flags, reset) ||
	    !replace_word(skb, p, offsetof(struct tcphdr, seq), tcp->seq, bpf_htonl(seq)))
		return TCX_DROP;
	return TCX_NEXT;
}

/* The fields used of the kernel's structs for a connection in TIME-WAIT: include/net/sock.h, include/linux/tcp.h. */
struct sock_common {
	__u32 skc_tw_rcv_nxt;
} __attribute__((preserve_access_index));

struct inet_timewait_sock {
	struct sock_common __tw_common;
} __attribute__((preserve_access_index));

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} __attribute__((preserve_access_index));

/*
 * Ends a TIME-WAIT that blocks a segment whose cookie is right. The kernel does so itself for a SYN with a later sequence
 * number than the connection before (tcp_timewait_state_process() of net/ipv4/tcp_minisocks.c; RFC 6191). It answers any
 * other SYN with an ACK, and the client's reset in response ends the TIME-WAIT, unless net.ipv4.tcp_rfc1337 is set. Here
 * the client has a SYN-ACK, so it sends no reset. It has proved its address, so this program sends the reset in its place.
 */
static __always_inline int end_time_wait(struct __sk_buff *skb, struct packet *p, struct tcphdr *tcp,
					 struct bpf_sock *sk)
{
	struct tcp_timewait_sock *tw = bpf_skc_to_tcp_timewait_sock(sk);

	return tw ? reset_before(skb, p, tcp, tw->tw_sk.__tw_common.skc_tw_rcv_nxt) : TCX_DROP;
}

/*
 * The verdict for a segment of a proved connection, for which the kernel finds this socket. A segment that cannot be
 * given to the kernel is dropped, never reset: the client sends it again. Two kinds of sockets that block the new
 * connection are ended: the TIME-WAIT of the connection before, and a request socket of a SYN that passed before
 * cookies were on. The kernel would keep that request for a minute.
 */
static __always_inline int judge_proved(struct __sk_buff *skb, struct packet *p, struct tcphdr *tcp,
					struct bpf_sock *sk, __u32 number)
{
	struct syn_options o = {};
	__u32 state = sk->state;

	if (state != BPF_TCP_LISTEN && state != BPF_TCP_NEW_SYN_RECV && state != BPF_TCP_TIME_WAIT) {
		flow_set(p, p->flags & TCP_FIN ? FLOW_DOUBTED : FLOW_ESTABLISHED);
		return TCX_NEXT;
	}
	skb_timestamps(skb, p, &o);
	if (!cookie_check(p, bpf_ntohl(tcp->seq), bpf_ntohl(tcp->ack_seq), &o))
		return state == BPF_TCP_LISTEN ? judge_unproved(p) : TCX_NEXT;
	if (p->fragment != FRAGMENT_NONE)
		return TCX_DROP;
	if (state != BPF_TCP_LISTEN && skb->tc_index == REINJECTED)
		return TCX_DROP;
	if (state == BPF_TCP_TIME_WAIT)
		return end_time_wait(skb, p, tcp, sk);
	if (state == BPF_TCP_NEW_SYN_RECV)
		return reset_before(skb, p, tcp, bpf_ntohl(tcp->seq));
	if (says_more(p) && skb->tc_index != REINJECTED)
		return reinject(skb);
	return give_connection(skb, sk, &o, number);
}

static __always_inline void count_invalid(struct __sk_buff *skb, __u32 number)
{
	struct protection *pr = bpf_map_lookup_elem(&protections, &number);

	if (pr)
		count(DECISION(pr->slots[ACK_INVALID], VERDICT_DROP), skb->len);
}

/* Sets the fields by which flows and cookies are found. Returns whether the segment may complete a handshake. */
static __always_inline bool skb_tcp(struct __sk_buff *skb, struct packet *p, struct tcphdr *tcp)
{
	if (!p->l4 || p->proto != IPPROTO_TCP || bpf_skb_load_bytes(skb, p->l4, tcp, sizeof(*tcp)))
		return false;
	p->sport = bpf_ntohs(tcp->source);
	p->port = bpf_ntohs(tcp->dest);
	p->payload = p->l4 + tcp->doff * 4;
	p->flags = tcp_flags(tcp);
	return may_begin(p);
}

SEC("tcx/ingress")
int ingress(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	struct packet p = {};
	struct tcphdr tcp;
	struct bpf_sock *sk;
	__u32 number;
	int verdict;

	p.end = skb_ip(skb, &p);
	p.end += p.length;
	if (!skb_tcp(skb, &p, &tcp))
		return TCX_NEXT;
	number = host_protection(p.port);
	if (!number || flow_state(&p) != FLOW_PROVED)
		return TCX_NEXT;
	tuple_of(&tuple, &p);
	sk = bpf_skc_lookup_tcp(skb, &tuple, tuple_size(&p, &tuple), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return TCX_NEXT;
	verdict = judge_proved(skb, &p, &tcp, sk, number - 1);
	bpf_sk_release(sk);
	if (verdict == TCX_DROP)
		count_invalid(skb, number - 1);
	return verdict;
}
