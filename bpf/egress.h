/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program for packets that leave, at the tc hook (TCX, Linux 6.6). It notes conversations and takes samples. For
 * guards it limits responses by destination, and records clients that a service has answered over TCP. The work for
 * guards concerns only packets from a guarded port.
 */
#pragma once

#include "count.h"
#include "issued.h"
#include "decision.h"
#include "replyleaving.h"
#include "limit.h"
#include "packet.h"
#include "sampleleaving.h"
#include "response.h"
#include "skb.h"
#include "verify.h"

/* Notes the client to which a service sends a packet, and the identifiers in it. Returns the result of note_issued(). */
static __always_inline __u32 note_answer(struct __sk_buff *skb, struct leaving *l)
{
	note_client(&l->key);
	return reads_datagrams ? note_issued(skb, l->l4, reply_hash(&l->key), reply_index(&l->key)) : 0;
}

/* Notes the conversation of a packet that usual_leaving() does not read. A global function. */
__noinline __u32 note_other(struct __sk_buff *skb)
{
	struct leaving l = {};

	if (!other_leaving(skb, &l))
		return 0;
	if (is_clients_port(&l.key)) {
		note_answer(skb, &l);
		return 0;
	}
	if (!notes_replies || !may_be_noted(&l.key) || reply_is_noted(&l))
		return 0;
	l.client = client_number(skb, l.client);
	expect_replies(&l);
	return 0;
}

/*
 * Notes the conversation of a packet that leaves. Returns the result of note_issued(), or 0. If there is nothing to note, it calls no function: a
 * return may cost 5 ns.
 */
static __always_inline __u32 note_leaving(struct __sk_buff *skb)
{
	struct leaving l = {};

	if (!usual_leaving(skb, &l)) {
		note_other(skb);
		return 0;
	}
	if (is_clients_port(&l.key))
		return note_answer(skb, &l);
	if (!notes_replies || is_service_port(&l.key) || reply_is_noted(&l))
		return 0;
	l.client = client_number(skb, l.client);
	expect_replies(&l);
	return 0;
}

/*
 * Records that a client is verified. If a service sends a client data over an established connection, the client has completed the
 * handshake, so its address is not forged. The entry is written only when half of its time has passed, so few answers write.
 */
static __always_inline void verify_client(struct packet *p, __u32 seconds)
{
	struct address client = client_of(p->dst, p->family);
	__u32 now = seconds_of(p), expiry = now + seconds;
	__u32 *known = bpf_map_lookup_elem(&verified, &client);

	if (!known || *known < now + seconds / 2)
		bpf_map_update_elem(&verified, &client, &expiry, BPF_ANY);
}

/*
 * Whether a segment may leave before its connection is established. With TCP Fast Open the server answers the data of a SYN
 * for a cookie that the address once got, and that anybody may have kept (RFC 7413, 4.2; Linux can do without the cookie).
 * The socket is in SYN_RECV then, and in FIN_WAIT1 when the server closes it at once. A forwarded segment has no socket here.
 */
static __always_inline bool may_precede_handshake(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	return sk && (sk->state == BPF_TCP_SYN_RECV || sk->state == BPF_TCP_FIN_WAIT1);
}

/* Verifies the client of a TCP segment with data. headers is the length of the IP headers. A SYN with data proves nothing (RFC 7413), nor does a reset. */
static __always_inline void leaving_tcp(struct __sk_buff *skb, struct packet *p, __u32 headers)
{
	struct guard *guard;
	struct tcphdr tcp;

	if (bpf_skb_load_bytes(skb, p->l4, &tcp, sizeof(tcp)) || tcp.syn || tcp.rst || may_precede_handshake(skb))
		return;
	guard = guard_of(bpf_ntohs(tcp.source));
	if (guard && guard->verify && p->length > headers + tcp.doff * 4)
		verify_client(p, guard->verify);
}

/*
 * Whether a response must be dropped. Only the first fragment of a fragmented response has the ports, so it is charged
 * for all fragments, by the length in the UDP header. Sets *told if note_response() must read the response.
 */
static __always_inline bool leaving_udp(struct __sk_buff *skb, struct packet *p, __u32 headers, bool *told)
{
	struct guard *guard;
	struct udphdr udp;
	__u32 length;

	if (bpf_skb_load_bytes(skb, p->l4, &udp, sizeof(udp)))
		return false;
	guard = guard_of(PORT_UDP + bpf_ntohs(udp.source));
	if (!guard)
		return false;
	if (unanswered_bit && guard->flags & GUARD_NAMES && p->fragment != FRAGMENT_FIRST)
		*told = keep_response(p, PORT_UDP + bpf_ntohs(udp.source), bpf_ntohs(udp.len));
	if (!(guard->flags & GUARD_LIMIT))
		return false;
	length = headers + bpf_ntohs(udp.len);
	if (p->length < length)
		p->length = length;
	if (!limit_exceeded(p, guard->limit))
		return false;
	count(DECISION(guard->slot, VERDICT_DROP), skb->len);
	return !(guard->flags & GUARD_OBSERVE);
}

/* A verdict: the response may leave, and note_response() must be called for it. */
#define LEAVES_TELLING 1

/* The verdict of guards on a packet that leaves, or LEAVES_TELLING. A global function, so that its struct packet is not on the stack of egress(). */
__noinline int guard_leaving(struct __sk_buff *skb)
{
	struct packet p = {};
	__u32 ip = skb_ip(skb, &p);
	bool told = false;

	if (!p.l4)
		return TCX_NEXT;
	if (p.proto == IPPROTO_TCP)
		leaving_tcp(skb, &p, p.l4 - ip);
	else if (p.proto == IPPROTO_UDP && leaving_udp(skb, &p, p.l4 - ip, &told))
		return TCX_DROP;
	return told ? LEAVES_TELLING : TCX_NEXT;
}

SEC("tcx/egress")
int egress(struct __sk_buff *skb)
{
	__u32 query;
	int verdict = TCX_NEXT;

	if (skb->tc_index == ANSWERED)
		return TCX_NEXT;
	query = notes_flows ? note_leaving(skb) : 0;
	if (admits && query == RAKNET_REQUEST2)
		verdict = turn_reply1(skb);
	else if (serves && query)
		verdict = turn_challenge(skb, query);
	if (verdict != TCX_NEXT) /* it does not leave */
		return verdict;
	if (guarded)
		verdict = guard_leaving(skb);
	if (verdict == TCX_DROP)
		return verdict;
	watch_leaving(skb);
	if (verdict == LEAVES_TELLING)
		note_response(skb);
	return TCX_NEXT;
}
