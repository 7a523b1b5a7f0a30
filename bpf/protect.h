/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Protection of services from floods of SYNs and ACKs: what a rule with a protection passes goes through protect(). SYNs
 * are answered with a cookie while there are too many of them; of the rest passes what belongs to a connection.
 *
 * Whether there are too many is for two limits to say, which count SYNs and packets of no connection: the first when
 * cookies begin, the second when they go on. So no process need be alive, and a flood writes nothing that CPUs share.
 */
#pragma once

#define ACTIVE_TIME 10000000000ULL       /* nanoseconds that cookies go on for after the limit was exceeded, */
#define ACTIVE_RENEW 1000000000ULL       /* which is noted again so long after it was */
#define COOKIE_TIME (2ULL << SLOT_SHIFT) /* that cookies may come back in */

/* The sequence number of the SYN-ACK, -1 when there is none. Strikes out of o what the cookie cannot tell. */
static __always_inline __s64 make_cookie(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u32 isn,
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

/* What a packet proves. */
enum proof {
	PROOF_NONE,
	PROOF_HANDSHAKE, /* that its sender got our SYN-ACK: it begins the connection */
	PROOF_PROBE,     /* the same, but what begins the connection was lost */
};

/*
 * What the cookie of the router proves. Its SYN-ACK announces no window: so a client whose ACK is lost can only probe it,
 * by an ACK of the octet before (RFC 9293, 3.8.6.1), which SYNPROXY would begin the connection one octet too early by.
 */
static __always_inline __u32 router_proof(struct xdp_md *ctx, struct packet *p, __u32 seq, __u32 ack)
{
	bool bare = p->payload >= p->end, probe;
	struct syn_options o = {};

	if (!read_timestamps(ctx, p, &o))
		read_options(ctx, p, &o);
	if (!o.timestamps) {
		if (!raw_cookie_valid(p, seq, ack))
			return PROOF_NONE;
		return bare && is_small_probe(p, seq, ack) ? PROOF_PROBE : PROOF_HANDSHAKE;
	}
	/* Most that is forged is not worth the hashes of the kernel. */
	if (!stamp_is_recent(o.tsecr, tick_of(p)))
		return PROOF_NONE;
	probe = bare && is_stamped_probe(o.tsecr, seq);
	if (!raw_cookie_valid(p, seq + probe, ack))
		return PROOF_NONE;
	return probe ? PROOF_PROBE : PROOF_HANDSHAKE;
}

/* What a cookie that came back proves. The timestamps are read where they are part of it. */
static __always_inline __u32 cookie_proof(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u32 seq,
					  __u32 ack)
{
	struct syn_options o = {};

	if (pr->method == METHOD_LISTENER)
		return listener_cookie_valid(ctx, p, seq, ack) ? PROOF_HANDSHAKE : PROOF_NONE;
	if (pr->method == METHOD_ROUTER)
		return router_proof(ctx, p, seq, ack);
	if (!read_timestamps(ctx, p, &o))
		read_options(ctx, p, &o);
	return protect_host && cookie_valid_for(p, seq, ack, &o) ? PROOF_HANDSHAKE : PROOF_NONE;
}

static __always_inline struct tcphdr *tcp_header(struct xdp_md *ctx, struct packet *p)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & 0x7fff);

	return (void *)(tcp + 1) > (void *)(long)ctx->data_end ? NULL : tcp;
}

/* Strikes out of what a SYN wants what the service does not do. */
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

/* Makes of what a SYN wants what its SYN-ACK announces. */
static __always_inline void announce(struct syn_options *o, struct packet *p, struct protection *pr, __u32 tsval)
{
	if (o->mss)
		o->mss = pr->mss[p->family & 1];
	if (o->wscale != WSCALE_NONE)
		o->wscale = pr->wscale;
	o->tsecr = tsval;
}

/* That the kernel alone has the key to answer a SYN by. */
enum { ANSWER_BY_KERNEL = 0xffffffff };

/* Makes a SYN its answer. Returns the length of the frame, 0 when there is none, or ANSWER_BY_KERNEL. A function of its own to the verifier. */
__noinline __u32 answer_with_cookie(struct xdp_md *ctx, struct packet *p, struct protection *pr)
{
	struct syn_ack a = {};
	struct tcphdr *tcp;
	__u32 isn, tsval;
	__s64 cookie;

	if (!p || !pr)
		return 0;
	tcp = tcp_header(ctx, p);
	if (!tcp || is_no_source(p))
		return 0;
	isn = bpf_ntohl(tcp->seq);
	read_options(ctx, p, &a.options);
	if (a.options.authenticated)
		return ANSWER_BY_KERNEL;
	limit_offers(&a.options, p, pr->offers);
	tsval = a.options.tsval;
	cookie = make_cookie(ctx, p, pr, isn, &a.options);
	if (cookie < 0)
		return 0;
	announce(&a.options, p, pr, tsval);
	a.seq = cookie;
	a.ack = isn + 1;
	a.window = pr->window;
	return make_syn_ack(ctx, p, &a);
}

/* What a packet proves, an enum proof. Like flow_state() a function of its own to the verifier. */
__noinline __u32 proves_address(struct xdp_md *ctx, struct packet *p, struct protection *pr)
{
	struct tcphdr *tcp;

	if (!p || !pr || !p->payload || !may_begin(p))
		return PROOF_NONE;
	tcp = tcp_header(ctx, p);
	return tcp ? cookie_proof(ctx, p, pr, bpf_ntohl(tcp->seq), bpf_ntohl(tcp->ack_seq)) : PROOF_NONE;
}

/*
 * Makes a probe of the window the SYN-ACK that it acknowledges, as was sent before, but without the options that are of
 * SYNs only. The client has the connection, and answers by the ACK which was lost (RFC 5961, 4.2). Returns the length of
 * the frame, 0 when there is none. A function of its own to the verifier.
 */
__noinline __u32 repeat_syn_ack(struct xdp_md *ctx, struct packet *p)
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
 * Whether SYNs are to be answered with cookies, now that one more packet of no connection has come. What is active is
 * charged only when it may have to be renewed. That is noted of what always is active, too: the next policy has to know
 * that there are cookies on their way.
 */
static __always_inline bool is_active(struct packet *p, struct protection *pr, struct protection_state *s, __u64 now)
{
	__u64 until = read_once(&s->active_until);

	if (until > now + ACTIVE_TIME - ACTIVE_RENEW)
		return true;
	if (!(pr->flags & PROTECT_ALWAYS) && !limit_exceeded(p, until > now ? pr->stop : pr->start))
		return until > now;
	s->active_until = now + ACTIVE_TIME;
	return true;
}

static __always_inline void count_outcome(struct packet *p, struct protection *pr, __u32 outcome)
{
	count(DECISION(pr->slots[outcome], VERDICT_PASS), p->octets);
}

/* Whether a SYN would be one SYN-ACK too many. */
static __always_inline bool too_many_answers(struct packet *p, struct protection *pr)
{
	for (__u32 i = 0; i < PROTECT_LIMITS; i++) {
		if (i >= pr->num_limits)
			return false;
		if (limit_exceeded(p, pr->limits[i]))
			return true;
	}
	return false;
}

/* Sends the answer of so many octets that a frame has become, none when it has become none. */
static __always_inline int send_answer(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u32 length)
{
	if (!length || bpf_xdp_adjust_tail(ctx, length - p->octets)) {
		count_outcome(p, pr, SYN_LIMITED);
		return XDP_DROP;
	}
	p->octets = length;
	count_outcome(p, pr, SYN_ANSWERED);
	return XDP_TX;
}

/* Does away with a SYN while cookies are active. */
static __always_inline int answer_syn(struct xdp_md *ctx, struct packet *p, struct protection *pr)
{
	__u32 length;

	if (too_many_answers(p, pr)) {
		count_outcome(p, pr, SYN_LIMITED);
		return XDP_DROP;
	}
	length = answer_with_cookie(ctx, p, pr);
	if (length != ANSWER_BY_KERNEL)
		return send_answer(ctx, p, pr, length);
	if (may_ask(ASK_STRANGER, tick_of(p)))
		return XDP_PASS;
	count_outcome(p, pr, SYN_LIMITED);
	return XDP_DROP;
}

/* What the kernel has of a packet's connection, an enum connection: nothing when this CPU may not ask. */
static __always_inline __u32 ask_kernel(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u32 asker,
					__u64 now)
{
	__u32 connection;

	if (!may_ask(asker, now))
		return CONNECTION_NONE;
	count_outcome(p, pr, ACK_ASKED);
	connection = kernel_connection(ctx, p, pr);
	if (connection >= CONNECTION_CLOSING)
		flow_set(p, connection == CONNECTION_OPEN ? FLOW_ESTABLISHED : FLOW_CLOSING);
	return connection;
}

/* Whether no SYN is to be answered. Cookies that are on their way remain good. */
static __always_inline bool is_resting(struct protection_state *s, __u64 now)
{
	return read_once(&s->refused_until) > now;
}

/*
 * Notes a flow whose cookie came back, in router mode one to be doubted: what SYNPROXY makes of it may be lost. What cannot
 * be noted is dropped where the kernel would have to be told of it.
 */
static __always_inline int pass_proved(struct xdp_md *ctx, struct packet *p, struct protection *pr)
{
	bool host = pr->method == METHOD_HOST;

	if (pr->method == METHOD_ROUTER) {
		forget_handshake(ctx, p);
		flow_set(p, FLOW_ESTABLISHED | FLOW_DOUBT);
	} else if (!flow_set(p, host ? FLOW_PROVED : FLOW_ESTABLISHED) && host) {
		return XDP_DROP;
	}
	count_outcome(p, pr, ACK_PROVED);
	return XDP_PASS;
}

/*
 * Whether a packet may bring back a cookie. SYNPROXY's is right for every segment of its connection while as many octets
 * have gone one way as the other, as the kernel's check takes one number from the other. So of a connection that is closing
 * only one after a SYN may, which left it in doubt.
 */
static __always_inline bool may_prove(struct packet *p, struct protection *pr, struct protection_state *s, __u32 known,
				      __u64 now)
{
	if (known && pr->method == METHOD_ROUTER && p->flow_age < FLOW_REFRESH)
		return false;
	return (pr->flags & PROTECT_ALWAYS) || now < read_once(&s->active_until) + COOKIE_TIME;
}

/*
 * A packet that is no SYN, and of no flow that is known, or of one that is closing and may have begun anew. Such a one is
 * the kernel's in any case, which is asked whether it is open when it goes on for long: a forged RST may have closed it.
 */
static __always_inline int judge_segment(struct xdp_md *ctx, struct packet *p, struct protection *pr,
					 struct protection_state *s, __u32 known, __u64 now)
{
	__u32 proof = may_prove(p, pr, s, known, now) ? proves_address(ctx, p, pr) : PROOF_NONE;

	if (proof == PROOF_PROBE) {
		if (known)
			flow_set(p, FLOW_CLOSING | FLOW_DOUBT);
		return send_answer(ctx, p, pr, repeat_syn_ack(ctx, p));
	}
	if (proof)
		return pass_proved(ctx, p, pr);
	if (!known || (p->flow_age >= FLOW_REFRESH && !(p->flags & (TCP_FIN | TCP_RST))))
		if (ask_kernel(ctx, p, pr, known ? ASK_KNOWN : ASK_STRANGER, now))
			return XDP_PASS;
	if (known || is_resting(s, now) || !is_active(p, pr, s, now))
		return XDP_PASS;
	count_outcome(p, pr, ACK_INVALID);
	return XDP_DROP;
}

/*
 * Notes of a connection that passes when it ends. One that is proved only is the kernel's to begin first: if it is reset
 * before, there is none.
 */
static __always_inline int pass_known(struct packet *p, __u32 state)
{
	if (state == FLOW_ESTABLISHED && (p->flags & (TCP_FIN | TCP_RST)))
		flow_set(p, FLOW_CLOSING);
	if (state == FLOW_PROVED && (p->flags & TCP_RST))
		flow_set(p, FLOW_NONE);
	return XDP_PASS;
}

/*
 * A packet of a connection behind this host that conntrack may not have yet, or not any more. While it has not, SYNPROXY
 * would take a probe of the window for the beginning, and what a client that does not heed the window sends for such a probe
 * (kernel net/netfilter/nf_synproxy_core.c, ipv4_synproxy_hook): it would begin the connection one octet too late. So that
 * is dropped, once: if there still is no connection when it comes again, it begins it.
 */
static __always_inline int judge_doubtful(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u64 now)
{
	__u32 proof;

	if (ask_kernel(ctx, p, pr, ASK_KNOWN, now) == CONNECTION_OPEN)
		return pass_known(p, FLOW_ESTABLISHED);
	flow_set(p, FLOW_ESTABLISHED | FLOW_DOUBT);
	proof = proves_address(ctx, p, pr);
	if (proof == PROOF_PROBE)
		return send_answer(ctx, p, pr, repeat_syn_ack(ctx, p));
	if (proof == PROOF_HANDSHAKE && says_more(p)) {
		flow_set(p, FLOW_CLOSING | FLOW_DOUBT);
		count_outcome(p, pr, ACK_INVALID);
		return XDP_DROP;
	}
	return pass_known(p, FLOW_ESTABLISHED);
}

/* A packet that is no SYN, of whichever flow. */
static __always_inline int judge_other(struct xdp_md *ctx, struct packet *p, struct protection *pr,
				       struct protection_state *s, __u32 known, __u64 now)
{
	if (!known || known == FLOW_CLOSING)
		return judge_segment(ctx, p, pr, s, known, now);
	if (pr->method == METHOD_ROUTER && p->flow_age >= FLOW_REFRESH)
		return judge_doubtful(ctx, p, pr, now);
	return pass_known(p, known);
}

/*
 * A SYN of a connection that is known to the kernel, which may have it still, or in TIME-WAIT, passes. No more than it can
 * bear: the client sends another. Answered with a cookie, its ACK would pass for one of the old connection, unless that is
 * closing.
 */
static __always_inline int judge_reopening(struct xdp_md *ctx, struct packet *p, struct protection *pr, __u32 known,
					   __u64 now)
{
	if (known == FLOW_CLOSING)
		flow_set(p, FLOW_CLOSING | FLOW_DOUBT);
	if (may_ask(ASK_KNOWN, now))
		return XDP_PASS;
	if (known == FLOW_CLOSING)
		return answer_syn(ctx, p, pr);
	count_outcome(p, pr, SYN_LIMITED);
	return XDP_DROP;
}

/* The number of the protection that a decision names, from 0 on. */
static __always_inline __u32 protection_number(__u32 decision)
{
	__u32 slot = decision >> 8;
	struct action *a = bpf_map_lookup_elem(&actions, &slot);

	return a ? a->protection - 1 : ~0;
}

/*
 * What is done with a packet that a protected service is sent, an enum xdp_action. Like flow_state() a function of its own
 * to the verifier.
 */
__noinline int protect(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	__u32 number = protection_number(decision);
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &number);
	struct protection *pr = bpf_map_lookup_elem(&protections, &number);
	__u64 now;
	__u32 known;

	if (!p || !pr || !s)
		return XDP_PASS;
	now = tick_of(p);
	known = flow_state(p);
	if ((p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN || !p->payload)
		return judge_other(ctx, p, pr, s, known, now);
	if (is_resting(s, now) || !is_active(p, pr, s, now))
		return XDP_PASS;
	return known ? judge_reopening(ctx, p, pr, known, now) : answer_syn(ctx, p, pr);
}
