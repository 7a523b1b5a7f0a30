/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Protection of services against floods of SYNs and ACKs. Packets that a rule with a protection passes go through protect().
 * While there are too many SYNs they are answered with cookies; other packets pass if they belong to a connection.
 *
 * Two limits say whether there are too many: cookies begin above the first and go on while the second is exceeded. SYNs and
 * packets of no connection are charged to them. The charge of a SYN is refunded when its handshake is completed. Therefore
 * clients that connect are no flood, however many they are. No process is needed, and a flood writes nothing that CPUs share.
 */
#pragma once

#include "address.h"
#include "clock.h"
#include "connlookup.h"
#include "cookie.h"
#include "count.h"
#include "decision.h"
#include "ends.h"
#include "flood.h"
#include "flow.h"
#include "kernelcookie.h"
#include "l4.h"
#include "limit.h"
#include "packet.h"
#include "protection.h"
#include "synack.h"
#include "verifier.h"
#include "sendback.h"

#define COOKIE_TIME (2ULL << SLOT_SHIFT) /* nanoseconds in which a cookie may come back */

/* The sequence number of the SYN-ACK, -1 when there is none. Removes from o the options that the cookie cannot encode. */
static __always_inline __s64 make_cookie(context *ctx, struct packet *p, struct protection *pr, __u32 isn,
					 struct syn_options *o)
{
	__u32 mss = o->mss ?: MSS_DEFAULT;

	if (pr->method == METHOD_HOST)
		return cookie_make(p, isn, o);
	if (o->timestamps) {
		o->tsval = stamped_options(time_of(p), o, isn);
	} else {
		o->wscale = WSCALE_NONE;
		o->sack = o->ecn = 0;
		if (pr->method == METHOD_ROUTER)
			mss = mss >= MSS_EVEN ? MSS_EVEN : MSS_DEFAULT;
	}
	if (pr->method == METHOD_LISTENER)
		return listener_cookie(ctx, p, isn, mss);
	return raw_cookie(p, isn, mss);
}

/* The proof that a packet gives about its sender. */
enum proof {
	PROOF_NONE,
	PROOF_HANDSHAKE, /* its sender received our SYN-ACK; the packet begins the connection */
	PROOF_PROBE,     /* the same, but the packet that begins the connection was lost */
};

/*
 * The proof in a cookie of mode router, an enum proof. The SYN-ACK announces a window of 0, so a client whose ACK is lost can only send a window probe:
 * an ACK with the sequence number of the byte before (RFC 9293, 3.8.6.1). From it SYNPROXY would begin the connection one byte too early.
 */
static __always_inline __u32 router_proof(struct packet *p, __u32 seq, __u32 ack, struct syn_options *o)
{
	bool bare = p->payload >= p->end, probe;

	if (!o->timestamps) {
		if (!raw_cookie_valid(p, seq, ack))
			return PROOF_NONE;
		return bare && is_small_probe(p, seq, ack) ? PROOF_PROBE : PROOF_HANDSHAKE;
	}
	/* Most forged segments end here, before the hashes of the kernel. */
	if (!stamp_is_recent(o->tsecr, tick_of(p)))
		return PROOF_NONE;
	probe = bare && is_stamped_probe(o->tsecr, seq);
	if (!raw_cookie_valid(p, seq + probe, ack))
		return PROOF_NONE;
	return probe ? PROOF_PROBE : PROOF_HANDSHAKE;
}

/* The proof in a cookie that came back, an enum proof. Timestamps are read if they are part of the cookie. */
static __always_inline __u32 cookie_proof(context *ctx, struct packet *p, struct protection *pr, __u32 seq, __u32 ack)
{
	struct syn_options o = {};

	if (pr->method == METHOD_LISTENER)
		return listener_cookie_valid(ctx, p, seq, ack) ? PROOF_HANDSHAKE : PROOF_NONE;
	if (!read_timestamps(ctx, p, &o))
		read_options(ctx, p, &o);
	if (pr->method == METHOD_ROUTER)
		return router_proof(p, seq, ack, &o);
	return protect_host && cookie_check(p, seq, ack, &o) ? PROOF_HANDSHAKE : PROOF_NONE;
}

/* Removes the options that the service does not support. */
static __always_inline void limit_offers(struct syn_options *o, struct packet *p, __u32 offers)
{
	if (!(offers & OFFER_WSCALE))
		o->wscale = WSCALE_NONE;
	if (!(offers & OFFER_SACK))
		o->sack = 0;
	if (!(offers & OFFER_TIMESTAMPS))
		o->timestamps = 0;
	/* RFC 3168, 6.1.1 */
	o->ecn = (offers & OFFER_ECN) && (p->flags & (TCP_ECE | TCP_CWR)) == (TCP_ECE | TCP_CWR);
}

/* Replaces the values of the SYN's options by those that the SYN-ACK announces. tsval is set with the cookie, tsecr before. */
static __always_inline void announce(struct syn_options *o, struct packet *p, struct protection *pr)
{
	if (o->mss)
		o->mss = pr->mss[p->family & 1];
	if (o->wscale != WSCALE_NONE)
		o->wscale = pr->wscale;
}

/*
 * Turns a SYN into its SYN-ACK. Returns the length of the frame, 0 when there is no answer. The answer has no TCP-AO or
 * MD5 option: a client that insists on one does not accept it. A global function.
 */
__noinline __u32 answer_with_cookie(context *ctx, struct packet *p, struct protection *pr)
{
	struct syn_ack a = {};
	struct tcphdr *tcp;
	__s64 cookie;
	__u32 isn;

	if (!p || !pr)
		return 0;
	tcp = tcp_header(ctx, p);
	if (!tcp)
		return 0;
	isn = bpf_ntohl(tcp->seq);
	a.ack = isn + 1;
	a.window = pr->window;
	read_options(ctx, p, &a.options);
	limit_offers(&a.options, p, pr->offers);
	a.options.tsecr = a.options.tsval;
	cookie = make_cookie(ctx, p, pr, isn, &a.options);
	if (cookie < 0)
		return 0;
	announce(&a.options, p, pr);
	a.seq = cookie;
	return make_syn_ack(ctx, p, &a);
}

/* The proof that a packet gives, an enum proof. A global function, like flow_state(). */
__noinline __u32 proves_address(context *ctx, struct packet *p, struct protection *pr)
{
	struct tcphdr *tcp;

	if (!p || !pr || !p->payload || !may_begin(p))
		return PROOF_NONE;
	tcp = tcp_header(ctx, p);
	return tcp ? cookie_proof(ctx, p, pr, bpf_ntohl(tcp->seq), bpf_ntohl(tcp->ack_seq)) : PROOF_NONE;
}

/*
 * Turns a window probe into the SYN-ACK that it acknowledges, but without the options that only SYNs may have. The
 * client has the connection, and answers with the ACK that was lost (RFC 5961, 4.2). Returns the length of the frame, 0
 * when there is none. A global function.
 */
__noinline __u32 repeat_syn_ack(context *ctx, struct packet *p)
{
	struct syn_ack a = {};
	struct tcphdr *tcp;
	__u32 tsval;

	if (!p)
		return 0;
	tcp = tcp_header(ctx, p);
	if (!tcp)
		return 0;
	a.seq = bpf_ntohl(tcp->ack_seq) - 1;
	a.ack = bpf_ntohl(tcp->seq) + 1;
	if (!read_timestamps(ctx, p, &a.options))
		read_options(ctx, p, &a.options);
	tsval = a.options.tsval;
	a.options.tsval = a.options.tsecr;
	a.options.tsecr = tsval;
	a.options.mss = a.options.sack = 0;
	a.options.wscale = WSCALE_NONE;
	return make_syn_ack(ctx, p, &a);
}

/*
 * Whether SYNs must be answered with cookies. Charges one more packet of no connection. With PROTECT_ALWAYS the time is
 * recorded, too: the next policy must know that ACKs with cookies may come.
 */
static __always_inline bool is_active(struct packet *p, struct protection *pr, struct protection_state *s, __u64 now)
{
	if (!(pr->flags & PROTECT_ALWAYS))
		return flood_goes_on(p, &s->active_until, pr->start, pr->stop, now);
	if (!surely_active(&s->active_until, now))
		s->active_until = now + ACTIVE_TIME;
	return true;
}

static __always_inline void count_outcome(struct packet *p, struct protection *pr, __u32 outcome)
{
	count_packet(DECISION(pr->slots[outcome], VERDICT_PASS), p);
}

/*
 * Whether one more SYN-ACK would exceed a limit of SYN-ACKs. It tests the limits from the index `first` on. The last two arguments are
 * those of charge_limit().
 */
static __always_inline bool too_many_answers(struct protection *pr, __u32 first, struct charged *who, __u32 traits)
{
	for (__u32 i = first; i < PROTECT_LIMITS; i++) {
		if (i >= pr->num_limits)
			return false;
		if (charge_limit(who, pr->limits[i], traits))
			return true;
	}
	return false;
}

/* Sends the answer that the frame has become, with this length; drops the frame when the length is 0. */
static __always_inline int send_answer(context *ctx, struct packet *p, struct protection *pr, __u32 length)
{
	if (!length || set_length(ctx, p->bytes, length)) {
		count_outcome(p, pr, SYN_LIMITED);
		return ACTION_DROP;
	}
	p->bytes = wire_length(ctx, length);
	count_outcome(p, pr, SYN_ANSWERED);
	return send_back(ctx);
}

/* Answers a window probe with the SYN-ACK that it acknowledges, if this host must answer it. */
static __always_inline int answer_probe(context *ctx, struct packet *p, struct protection *pr)
{
	if (!is_to_answer(ctx, p, pr->method))
		return ACTION_PASS;
	return send_answer(ctx, p, pr, repeat_syn_ack(ctx, p));
}

/* Answers a SYN with a cookie, or drops it when there are too many. */
static __always_inline int answer_syn(context *ctx, struct packet *p, struct protection *pr)
{
	if (too_many_answers(pr, 0, &p->charged, traits_of(p))) {
		count_outcome(p, pr, SYN_LIMITED);
		return ACTION_DROP;
	}
	return send_answer(ctx, p, pr, is_no_peer(p) ? 0 : answer_with_cookie(ctx, p, pr));
}

/* Whether a SYN has TCP-AO or MD5. A global function. */
__noinline __u32 is_authenticated(context *ctx, struct packet *p)
{
	struct syn_options o = {};

	if (!p)
		return false;
	read_options(ctx, p, &o);
	return o.authenticated;
}

/* Whether the kernel must answer a SYN with TCP-AO or MD5, whose keys only the kernel has. The policy allows this up to a limit. */
static __always_inline bool is_for_kernel(context *ctx, struct packet *p, struct protection *pr)
{
	return (pr->flags & PROTECT_AUTHENTICATED) && is_authenticated(ctx, p) && !limit_exceeded(p, pr->authenticated);
}

/*
 * Stores the state of a flow whose source has proved its address. In a full table a prefix displaces only so many flows
 * that the kernel has, because these may be connections of others that are alive. Returns whether it is stored.
 */
static __always_inline bool note_flow(struct packet *p, struct protection *pr, __u32 state)
{
	__u32 noted = flow_set(p, state);

	if (noted == FLOW_FULL && !limit_exceeded(p, pr->displace))
		noted = flow_set(p, state | FLOW_DISPLACE);
	return noted == FLOW_NOTED;
}

/*
 * Stores that the kernel has a flow open. A doubted flow stays doubted for FLOW_DOUBT seconds. Otherwise a repeated segment that comes
 * before the FIN reaches the kernel would end the doubt, and the flow would outlive its connection.
 */
static __always_inline void note_open(struct packet *p, struct protection *pr, __u32 known)
{
	if (known != FLOW_DOUBTED)
		note_flow(p, pr, flow_rank(known) ? FLOW_LASTING : FLOW_ESTABLISHED);
	else if (p->flow_age >= FLOW_DOUBT)
		note_flow(p, pr, FLOW_ESTABLISHED);
}

/* Refunds the charge of a SYN whose handshake is completed. */
static __always_inline void completed(struct packet *p, struct protection *pr, struct protection_state *s, __u64 now)
{
	if (!(pr->flags & PROTECT_ALWAYS))
		limit_credit(p, read_once(&s->active_until) > now ? pr->stop : pr->start);
}

/*
 * Asks the kernel for the state of a packet's connection, an enum connection; CONNECTION_UNKNOWN when this CPU may not
 * ask. Stores the answer in the flow table; known is the flow's present state.
 */
static __always_inline __u32 ask_kernel(context *ctx, struct packet *p, struct protection *pr,
					struct protection_state *s, __u32 known, __u64 now)
{
	__u32 connection;

	if (!may_ask(known ? ASK_KNOWN : ASK_STRANGER, now))
		return CONNECTION_UNKNOWN;
	count_outcome(p, pr, ACK_ASKED);
	connection = kernel_connection(ctx, p, pr);
	if (connection == CONNECTION_OPEN)
		note_open(p, pr, known);
	else if (connection == CONNECTION_CLOSING || (connection > CONNECTION_NONE && flow_rank(known)))
		note_flow(p, pr, FLOW_CLOSING);
	else if (connection == CONNECTION_NONE && (flow_rank(known) || known == FLOW_CLOSING))
		flow_set(p, FLOW_NONE);
	if (connection == CONNECTION_OPEN && (!known || known == FLOW_REOPENED))
		completed(p, pr, s, now);
	return connection;
}

/* The DSCP of a packet that is not for SYNPROXY, one for local use (RFC 2474, section 6): ServerDSCP of internal/compile/plan. */
enum {
	DSCP_SERVER = 3,
};

/*
 * Marks a packet, so that netfilter passes it to its server although it belongs to no connection. If is_for_server is false, removes a
 * mark that the sender set. Always returns 0. A global function: its stack counts once.
 */
__noinline __u32 mark_for_server(context *ctx, __u32 is_for_server)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be16 *word = data + ip_offset(data, end);
	struct iphdr *ip = (void *)word;
	__u32 shift = 2, old, new;

	if ((void *)(ip + 1) > end)
		return 0;
	old = bpf_ntohs(*word);
	if (old >> 12 == 6)
		shift = 6;
	if (!is_for_server && (old >> shift & 0x3f) != DSCP_SERVER)
		return 0;
	new = (old & ~(0x3fU << shift)) | (is_for_server ? DSCP_SERVER << shift : 0);
	*word = bpf_htons(new);
	if (shift == 2) /* RFC 1624, section 3; IPv6 has no checksum */
		ip->check = checksum((__u16)~ip->check + (__u16)~bpf_htons(old) + (__u64)bpf_htons(new));
	return 0;
}

/* Whether the protection answers no SYN for a while. Cookies that were sent remain valid. */
static __always_inline bool is_resting(struct protection_state *s, __u64 now)
{
	return read_once(&s->refused_until) > now;
}

/*
 * Stores a flow whose cookie came back. If it cannot be stored, the packet is dropped: the kernel learns only of stored flows,
 * and the flow must not displace another one if its source's prefix has displaced enough.
 */
static __always_inline int pass_proved(context *ctx, struct packet *p, struct protection *pr,
				       struct protection_state *s, __u64 now)
{
	if (pr->method == METHOD_ROUTER)
		forget_connection(ctx, p);
	if (!note_flow(p, pr, pr->method == METHOD_LISTENER ? FLOW_ESTABLISHED : FLOW_PROVED)) {
		count_outcome(p, pr, SYN_LIMITED);
		return ACTION_DROP;
	}
	count_outcome(p, pr, ACK_PROVED);
	completed(p, pr, s, now);
	if (pr->method == METHOD_ROUTER)
		mark_for_server(ctx, false);
	return ACTION_PASS;
}

/*
 * Whether a packet may bring back a cookie. SYNPROXY's check subtracts one sequence number from the other. So it
 * accepts every segment of a connection in which as many bytes went one way as the other. Therefore no segment of a
 * closing connection counts until a SYN has started another. The cookies of a listening socket may be the kernel's own.
 */
static __always_inline bool may_prove(struct protection *pr, struct protection_state *s, __u32 known, __u64 now)
{
	if (known == FLOW_CLOSING && pr->method == METHOD_ROUTER)
		return false;
	return (pr->flags & PROTECT_ALWAYS) || pr->method == METHOD_LISTENER ||
	       now < read_once(&s->active_until) + COOKIE_TIME;
}

/*
 * Whether the kernel must be asked about a packet of a flow that is not open. The kernel is asked about a closing flow only when
 * the flow goes on for long, because a forged FIN or RST may have closed it.
 */
static __always_inline bool is_to_ask(struct packet *p, __u32 known)
{
	if (known != FLOW_CLOSING)
		return true;
	return p->flow_age >= FLOW_REFRESH && !(p->flags & (TCP_FIN | TCP_RST));
}

/*
 * Whether a packet may belong to a connection that conntrack has lost. A client's port may be in use again at once. A late segment of the
 * connection before makes the client send a reset (RFC 9293, 3.10.7.3), which conntrack takes for one of the new connection: it deletes
 * the entry, or closes it. The server ignores the reset, as its number is wrong. SYNPROXY would find no cookie in the ACKs of the new
 * connection, and drop them.
 */
static __always_inline bool is_lost_to_conntrack(__u32 known, __u32 connection)
{
	return known == FLOW_REOPENED && (connection == CONNECTION_NONE || connection == CONNECTION_OVER);
}

/*
 * Decides a packet that is no SYN, of a flow that is unknown, closing or reopened. A packet of a closing or reopened flow
 * passes, unless the kernel says that it has no such connection.
 */
static __always_inline int judge_segment(context *ctx, struct packet *p, struct protection *pr,
					 struct protection_state *s, __u32 known, __u64 now)
{
	__u32 proof = may_prove(pr, s, known, now) ? proves_address(ctx, p, pr) : PROOF_NONE;
	__u32 connection = CONNECTION_UNKNOWN;

	if (proof == PROOF_PROBE)
		return answer_probe(ctx, p, pr);
	if (proof)
		return pass_proved(ctx, p, pr, s, now);
	if (is_to_ask(p, known))
		connection = ask_kernel(ctx, p, pr, s, known, now);
	if (connection > CONNECTION_NONE || known == FLOW_REOPENED || (known && connection == CONNECTION_UNKNOWN) ||
	    is_resting(s, now) || !is_active(p, pr, s, now)) {
		if (pr->method == METHOD_ROUTER)
			mark_for_server(ctx, is_lost_to_conntrack(known, connection));
		return ACTION_PASS;
	}
	count_outcome(p, pr, ACK_INVALID);
	return ACTION_DROP;
}

/* Passes a packet of a proved flow. The kernel has no connection yet: after a reset there is none to begin. */
static __always_inline int pass_proved_flow(struct packet *p)
{
	if (p->flags & TCP_RST)
		flow_set(p, FLOW_NONE);
	return ACTION_PASS;
}

/*
 * Passes a packet of an open connection. ask_kernel() has closed the flow if the packet is a FIN or RST with the sequence number that
 * the kernel expects. With another number, the packet came before earlier segments, or it is forged. Anybody can forge it, and a closing flow
 * is forgotten after FLOW_LINGER seconds. So the flow is only doubted, and the kernel is asked about the next packets.
 */
static __always_inline int pass_open(struct packet *p)
{
	if (p->flags & (TCP_FIN | TCP_RST))
		flow_set(p, FLOW_DOUBTED);
	return ACTION_PASS;
}

/*
 * Decides a packet of a proved flow in mode router, whose connection conntrack may not have yet. Until it has, SYNPROXY takes a
 * window probe for the start of the connection, and also data that a client sends into the closed window: the
 * connection would begin at the wrong byte (kernel net/netfilter/nf_synproxy_core.c, ipv4_synproxy_hook). So data is
 * dropped once. If conntrack still has no connection when the client sends it again, it starts the connection.
 */
static __always_inline int judge_proved_behind(context *ctx, struct packet *p, struct protection *pr,
					       struct protection_state *s, __u64 now)
{
	__u32 proof;

	if (ask_kernel(ctx, p, pr, s, FLOW_PROVED, now) == CONNECTION_OPEN)
		return pass_open(p);
	proof = proves_address(ctx, p, pr);
	if (proof == PROOF_PROBE)
		return answer_probe(ctx, p, pr);
	if (proof == PROOF_HANDSHAKE && says_more(p)) {
		flow_set(p, FLOW_NONE);
		count_outcome(p, pr, ACK_INVALID);
		return ACTION_DROP;
	}
	mark_for_server(ctx, false);
	return pass_proved_flow(p);
}

/*
 * Decides a packet of a flow that the kernel was known to have a minute ago or earlier, or a packet that closes its flow. If the kernel
 * no longer has the flow, there is no connection.
 */
static __always_inline int judge_again(context *ctx, struct packet *p, struct protection *pr,
				       struct protection_state *s, __u32 known, __u64 now)
{
	__u32 connection = ask_kernel(ctx, p, pr, s, known, now);

	if (connection == CONNECTION_OPEN)
		return pass_open(p);
	if (connection == CONNECTION_UNKNOWN && p->flow_age >= FLOW_REFRESH)
		flow_set(p, known); /* it was seen */
	if (connection != CONNECTION_NONE || is_resting(s, now) || !is_active(p, pr, s, now))
		return ACTION_PASS;
	count_outcome(p, pr, ACK_INVALID);
	return ACTION_DROP;
}

/* Decides a packet that is no SYN, of any flow. */
static __always_inline int judge_other(context *ctx, struct packet *p, struct protection *pr,
				       struct protection_state *s, __u32 known, __u64 now)
{
	if (!known || known == FLOW_CLOSING || known == FLOW_REOPENED)
		return judge_segment(ctx, p, pr, s, known, now);
	if (known == FLOW_PROVED && pr->method == METHOD_ROUTER)
		return judge_proved_behind(ctx, p, pr, s, now);
	if (!flow_rank(known))
		return pass_proved_flow(p);
	if (known == FLOW_DOUBTED || p->flow_age >= FLOW_REFRESH || (p->flags & (TCP_FIN | TCP_RST)))
		return judge_again(ctx, p, pr, s, known, now);
	return ACTION_PASS;
}

/*
 * Decides a SYN of a known flow. If the flow is closing, the SYN passes, once for each connection that was there: the kernel may have
 * the connection in TIME-WAIT, which only the kernel can end. SYNs of other flows pass at a rate that the kernel can bear; the client
 * repeats a SYN. A SYN of an open flow is not answered with a cookie: the ACK would count as one of the open connection.
 */
static __always_inline int judge_reopening(context *ctx, struct packet *p, struct protection *pr, __u32 known,
					   bool active, __u64 now)
{
	if (known == FLOW_CLOSING)
		flow_set(p, FLOW_REOPENED);
	if (!active || known == FLOW_CLOSING || may_ask(ASK_KNOWN, now))
		return ACTION_PASS;
	if (known == FLOW_REOPENED)
		return answer_syn(ctx, p, pr);
	count_outcome(p, pr, SYN_LIMITED);
	return ACTION_DROP;
}

/* The number of the protection in a decision's action, from 0 on. */
static __always_inline __u32 protection_number(__u32 decision)
{
	__u32 slot = decision >> 8;
	struct action *a = bpf_map_lookup_elem(&actions, &slot);

	return a ? a->protection - 1 : ~0;
}

/*
 * Decides a packet to a protected service, and returns an action. A global function, like
 * flow_state().
 */
__noinline int protect(context *ctx, struct packet *p, __u32 decision)
{
	__u32 number = protection_number(decision);
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &number);
	struct protection *pr = bpf_map_lookup_elem(&protections, &number);
	__u32 known;
	__u64 now;
	bool active;

	if (!p || !pr || !s)
		return ACTION_PASS;
	now = tick_of(p);
	known = flow_state(p);
	if ((p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN || !p->payload)
		return judge_other(ctx, p, pr, s, known, now);
	if (!is_to_answer(ctx, p, pr->method))
		return ACTION_PASS;
	active = !is_resting(s, now) && is_active(p, pr, s, now);
	if (known)
		return judge_reopening(ctx, p, pr, known, active, now);
	if (!active)
		return ACTION_PASS;
	if (is_for_kernel(ctx, p, pr)) {
		count_outcome(p, pr, SYN_AUTHENTICATED);
		return ACTION_PASS;
	}
	return answer_syn(ctx, p, pr);
}
