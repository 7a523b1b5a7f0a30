/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Notes the conversations of packets that leave (replyflow.h). egress() asks for it for each packet, so the usual ones
 * are parsed in the data of the skb, and a conversation that is noted already costs one look into its bucket.
 */
#pragma once

#include "datagram.h"
#include "replyclient.h"
#include "replyflow.h"
#include "l4.h"
#include "packet.h"
#include "skb.h"

/* Whether any of both is to be noted: replies, if the policy lets them pass, and clients of services. Constants. */
const volatile bool notes_flows;
const volatile bool notes_replies;
const volatile bool notes_clients;

/*
 * The ports of services, a bit each: of TCP, then of UDP. What leaves from there is not noted, since a rule decides what
 * arrives there before replies are asked for.
 */
__u64 service_ports[2 << 10] SEC(".data.services");

/* The ports of UDP whose clients are noted, likewise. */
__u64 client_ports[1 << 10] SEC(".data.clients");

/* A packet that leaves, and what a reply to it looks like. */
struct leaving {
	struct reply_key key;
	__u32 flags; /* of TCP */
	__u32 client;
	__u32 l4; /* where the L4 header begins in the frame */
};

/* The port from which a packet leaves. */
static __always_inline __u64 own_port(struct reply_key *t)
{
	return opaque(bpf_ntohs(t->ports >> 16)) &
	       0xffff; /* the verifier of Linux 6.1 knows nothing of a swapped value */
}

static __always_inline bool is_service_port(struct reply_key *t)
{
	__u64 port = own_port(t) | (__u64)(t->kind == REPLY_UDP) << 16;

	return service_ports[port >> 6] >> (port & 63) & 1;
}

static __always_inline bool is_clients_port(struct reply_key *t)
{
	__u64 port;

	if (!notes_clients || t->kind != REPLY_UDP)
		return false;
	port = own_port(t);
	return client_ports[port >> 6] >> (port & 63) & 1;
}

/* Reads TCP or UDP at a place in the data. */
static __always_inline bool leaving_ports(struct leaving *l, void *l4, void *end, __u8 proto)
{
	struct tcphdr *tcp = l4;

	if ((void *)(&tcp->seq + 1) > end)
		return false;
	l->key.ports = (__u32)tcp->source << 16 | tcp->dest;
	if (proto == IPPROTO_UDP) {
		l->key.kind = REPLY_UDP;
		return true;
	}
	if (proto != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return false;
	l->key.kind = REPLY_TCP;
	l->flags = tcp_flags(tcp);
	return true;
}

/* Reads a packet of TCP or UDP whose headers are in the data, without options, extension headers and fragments. */
static __always_inline bool usual_leaving(struct __sk_buff *skb, struct leaving *l)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethernet *eth = data;
	struct ipv6hdr *six = (void *)(eth + 1);
	struct iphdr *four = (void *)(eth + 1);

	if ((void *)(four + 1) > end)
		return false;
	if (eth->type == bpf_htons(ETH_P_IP)) {
		if (four->version != 4 || four->ihl != 5 || four->frag_off & bpf_htons(0x3fff))
			return false;
		reply_ends4(&l->key, four->daddr, four->saddr);
		l->client = four->saddr;
		l->l4 = sizeof(*eth) + sizeof(*four);
		return leaving_ports(l, four + 1, end, four->protocol);
	}
	if (eth->type != bpf_htons(ETH_P_IPV6) || (void *)(six + 1) > end)
		return false;
	reply_ends6(&l->key, &six->daddr, &six->saddr);
	l->client = six->saddr.in6_u.u6_addr32[3];
	l->l4 = sizeof(*eth) + sizeof(*six);
	return leaving_ports(l, six + 1, end, six->nexthdr);
}

/*
 * The state after a segment that leaves; REPLY_NONE if it begins no flow. A reset answers what should not have come in, and a FIN ends
 * what is not known.
 */
static __always_inline __u32 reply_after_own_segment(__u32 state, __u32 flags)
{
	if (flags & TCP_RST)
		return state ? REPLY_TCP_CLOSED : REPLY_NONE;
	if (flags & TCP_SYN &&
	    flags & TCP_ACK) /* an answer, of two sides that open at once when a SYN has left before */
		return state == REPLY_TCP_SYN ? REPLY_TCP_ACK : state;
	if (flags & TCP_SYN) /* of an open connection it is ignored, also by who gets it (RFC 5961, 4) */
		return state >= REPLY_TCP_ACK && state < REPLY_TCP_CLOSED ? state : REPLY_TCP_SYN;
	if (!state)
		return flags & TCP_FIN ? REPLY_NONE : REPLY_TCP_ACK;
	if (flags & TCP_FIN) {
		if (state < REPLY_TCP_OPEN)
			return state;
		return state == REPLY_TCP_FIN_IN || state == REPLY_TCP_CLOSED ? REPLY_TCP_CLOSED : REPLY_TCP_FIN_OUT;
	}
	return state == REPLY_TCP_RESET ? REPLY_TCP_OPEN : state;
}

static __always_inline __u32 reply_after_leaving(__u32 state, __u32 kind, __u32 flags)
{
	if (kind == REPLY_TCP)
		return reply_after_own_segment(state, flags);
	if (state)
		return state;
	return kind == REPLY_UDP ? REPLY_UDP_NEW : kind == REPLY_ICMP ? REPLY_ECHO : REPLY_BARE_NEW;
}

/* 1 if a number is 0, without a branch: each would be one more path for the verifier. */
static __always_inline __u64 is_zero(__u64 n)
{
	return opaque(~(n | -n) >> 63);
}

/* 1 if the other side of a word is the client, which has no number of one in it, else 0. Without a branch, likewise. */
static __always_inline __u64 of_client(__u64 word)
{
	return opaque((reply_state_of(word) + REPLY_STATES - REPLY_CLIENT_NEW) / REPLY_STATES);
}

/* How many conversations of a bucket, but those with clients of services, are of the client of one of them. A global function. */
__noinline __u32 reply_flows_of_same(struct reply_bucket *b, __u64 word)
{
	__u32 n = 0;

	if (!b)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++) {
		__u64 other = read_once(&b->word[i]);

		n += is_zero(reply_client_of(word ^ other)) & ~is_zero(reply_state_of(other)) & ~of_client(other) & 1;
	}
	return n;
}

enum {
	REPLY_UNANSWERED = BIT(REPLY_TCP_SYN) | BIT(REPLY_TCP_ACK) | BIT(REPLY_UDP_NEW) | BIT(REPLY_ECHO) |
			   BIT(REPLY_BARE_NEW) | BIT(REPLY_FRAGMENTS) | BIT(REPLY_CLIENT_NEW),
	REPLY_ENDED = BIT(REPLY_TCP_CLOSED) | BIT(REPLY_TCP_RESET),
	REPLY_WORTH_SHIFT = 20, /* above what is left of its life */
	REPLY_FREE = 64,        /* the smallest worth of a slot whose conversation is over */
	REPLY_KEPT =
		2, /* the worth of a client's only conversation in a bucket, if it was answered: it is not replaced */
};

/* How much a slot is to be given to another conversation, without a branch: the less is left of its life, the more. */
static __always_inline __u64 reply_spare(struct reply_bucket *b, __u64 word, __u32 now)
{
	__u32 state = reply_state_of(word), age = reply_age(word, now);
	__u64 left = (__u64)reply_life[state] + 1 - age, over = left >> 63;
	__u64 spare = 2 * reply_flows_of_same(b, word) * (1 - of_client(word));

	spare += 5 * ((__u32)REPLY_UNANSWERED >> state & 1) + 32 * ((__u32)REPLY_ENDED >> state & 1);
	spare += REPLY_FREE * opaque(over) + 2 * REPLY_FREE * is_zero(state);
	return (spare << REPLY_WORTH_SHIFT) + LIFE_REPLY_TCP_OPEN + 1 - left;
}

/*
 * The slot for a new conversation, and in the upper half how much it is to spare. What is over goes first; then what has
 * ended; then of the clients that have most of the bucket what was not answered; then what has least of its life left. A
 * global function.
 */
__noinline __u64 reply_victim(struct reply_bucket *b, __u32 now)
{
	__u64 most = 0, found = 0;

	if (!b)
		return 0;
#pragma nounroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++) {
		__u64 spare = reply_spare(b, read_once(&b->word[i]), now), more = opaque((most - spare) >> 63);

		found += (i - found) * more;
		most += (spare - most) * more;
	}
	return most >> REPLY_WORTH_SHIFT << 32 | found;
}

/* How many conversations were noted in place of others, and how many were not, as none could give way. */
struct reply_counts {
	__u64 displaced;
	__u64 refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reply_counts);
} reply_counts SEC(".maps");

static __always_inline void count_reply_flow(bool displaced)
{
	__u32 zero_key = 0;
	struct reply_counts *c = bpf_map_lookup_elem(&reply_counts, &zero_key);

	if (!c)
		return;
	if (displaced)
		c->displaced++;
	else
		c->refused++;
}

/* What became of the word of a conversation that leaves. */
enum reply_written {
	REPLY_AGAIN, /* another CPU was first */
	REPLY_WRITTEN,
	REPLY_UNWRITTEN, /* it begins nothing, or there is no place */
};

/* The word of a new conversation takes the place of another. */
static __always_inline enum reply_written place_reply_flow(struct reply_bucket *b, __u64 next, __u32 now)
{
	__u64 victim = reply_victim(b, now), spare = victim >> 32, word;
	__u64 *slot = &b->word[victim & (REPLY_SLOTS - 1)];

	if (spare <= REPLY_KEPT && reply_client_of(next)) { /* clients do not keep this host from asking */
		count_reply_flow(false);
		return REPLY_UNWRITTEN;
	}
	word = read_once(slot);
	if (__sync_val_compare_and_swap(slot, word, next) != word)
		return REPLY_AGAIN;
	if (spare < REPLY_FREE)
		count_reply_flow(true);
	return REPLY_WRITTEN;
}

/* The time of a new word: that of an identifier is set back, so that it is not remembered for longer than a question unless it is used. */
static __always_inline __u32 reply_begins(__u32 kind, __u32 now)
{
	return kind == REPLY_ISSUED ? (now - (LIFE_REPLY_BARE_NEW - LIFE_REPLY_UDP_NEW)) & (BIT(REPLY_SEEN_BITS) - 1)
				    : now;
}

/*
 * Writes the word of a conversation that leaves: as has the state that it is to have, or 0 for that which follows from flags and kind.
 * Returns enum reply_written. A global function.
 */
__noinline __u32 write_reply_flow(struct reply_bucket *b, struct leaving *l, __u32 as)
{
	__u32 state, now, client;
	__u64 hash, at, word;

	if (!b || !l)
		return REPLY_UNWRITTEN;
	hash = reply_hash(&l->key);
	at = find_reply_flow(b, hash);
	now = reply_now();
	if (at >= REPLY_SLOTS) {
		state = as ? as : reply_after_leaving(REPLY_NONE, l->key.kind, l->flags);
		return state ? place_reply_flow(b, reply_word(hash, l->client, state, reply_begins(l->key.kind, now)),
						now)
			     : REPLY_UNWRITTEN;
	}
	word = read_once(&b->word[at]);
	if (!is_reply_flow(word, hash))
		return REPLY_AGAIN;
	if (l->key.kind == REPLY_ISSUED && !reply_is_over(word, now))
		return REPLY_WRITTEN; /* what uses it says for how long it is remembered */
	state = reply_is_over(word, now) ? REPLY_NONE : reply_state_of(word);
	state = as ? as : reply_after_leaving(state, l->key.kind, l->flags);
	client = reply_client_of(word); /* conntrack has not seen a packet of a flowtable */
	if (!client || as == REPLY_CLIENT_NEW)
		client = l->client;
	if (!state)
		return REPLY_UNWRITTEN;
	now = reply_begins(l->key.kind, now);
	if (__sync_val_compare_and_swap(&b->word[at], word, reply_word(hash, client, state, now)) != word)
		return REPLY_AGAIN;
	return REPLY_WRITTEN;
}

enum { REPLY_AS_SHIFT = 16 };

/*
 * Notes a conversation, or what has become of it. ends are reply_ends(); flags those of TCP, with the state that it is to have in the upper
 * half. A global function.
 */
__noinline __u32 expect_reply(__u64 pair, __u64 ends, __u64 index, __u32 flags, __u32 client)
{
	struct leaving l = { { .pair = pair, .ports = ends, .kind = ends >> 32 }, flags & 0xff, client };
	__u32 written = REPLY_AGAIN;

	index = reply_index_within(index);
	for (int i = 0; i < REPLY_TRIES && written == REPLY_AGAIN; i++)
		written = write_reply_flow(reply_bucket(index), &l, flags >> REPLY_AS_SHIFT);
	if (written == REPLY_WRITTEN)
		set_reply_bits(index, hash_reply_key(pair, ends));
	return 0;
}

/*
 * Notes the conversation of a packet, and before one of UDP that later fragments may come: where both are in one full bucket, the second
 * may displace the first.
 */
static __always_inline void expect_replies(struct leaving *l)
{
	__u32 ports = l->key.ports;

	if (l->key.kind == REPLY_UDP) {
		l->key.ports = 0;
		l->key.kind = REPLY_OTHER + IPPROTO_UDP;
		expect_reply(l->key.pair, reply_ends(&l->key), reply_index(&l->key), REPLY_FRAGMENTS << REPLY_AS_SHIFT,
			     l->client);
		l->key.ports = ports;
		l->key.kind = REPLY_UDP;
	}
	expect_reply(l->key.pair, reply_ends(&l->key), reply_index(&l->key), l->flags, l->client);
}

/* Whether a packet changes nothing: its conversation is noted, and will be for long enough. */
static __always_inline bool reply_is_noted(struct leaving *l)
{
	__u64 index = reply_index(&l->key), hash = reply_hash(&l->key), word;
	struct reply_bucket *b = reply_bucket(index);
	__u32 now;

	if (!reply_may_be(index, hash))
		return false;
	now = reply_now();
	word = live_reply_flow(b, find_reply_flow(b, hash), hash, now);
	return word && !reply_is_stale(word, reply_after_leaving(reply_state_of(word), l->key.kind, l->flags), now);
}

/* The word of a client that came again and is answered now. */
static __always_inline __u64 answered_client(__u64 word, __u32 now)
{
	__u32 times = reply_client_of(word) & CLIENT_MOST;

	times += times < CLIENT_MOST;
	return (word >> REPLY_TAG_SHIFT << REPLY_TAG_SHIFT) | (__u64)times << REPLY_CLIENT_SHIFT |
	       (__u64)(times < CLIENT_KNOWN ? REPLY_CLIENT_NEW : REPLY_CLIENT) << REPLY_STATE_SHIFT | now;
}

/*
 * Notes that a service answers a client. Most answers change nothing: the client was answered in this unit already, or
 * did not come since. A client that is not there is new.
 */
static __always_inline void note_client(struct reply_key *t)
{
	__u64 index = reply_index(t), hash = reply_hash(t), at, word = 0;
	struct reply_bucket *b = reply_bucket(index);
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (reply_state_of(word) < REPLY_CLIENT_NEW) { /* or this host began it, while nothing protected the port */
		expect_reply(t->pair, reply_ends(t), index, REPLY_CLIENT_NEW << REPLY_AS_SHIFT, 1);
		return;
	}
	if (!reply_may_be(index, hash)) /* what wrote the word has not come to that yet */
		set_reply_bits(index, hash);
	if (at < REPLY_SLOTS && reply_client_of(word) & CLIENT_CAME && reply_age(word, now) > 1)
		__sync_val_compare_and_swap(&b->word[at], word, answered_client(word, now));
}

/* The first eight bytes of an L4 header. */
struct l4_start {
	__be16 first;
	__be16 second;
	__be16 third;
	__be16 fourth;
};

/* Reads any other packet. Returns false for one that begins no conversation. A global function, so that struct packet is not on the stack of others. */
__noinline __u32 other_leaving(struct __sk_buff *skb, struct leaving *l)
{
	struct packet p = {};
	struct l4_start start;
	struct tcphdr tcp;

	if (!l)
		return false;
	skb_ip(skb, &p);
	if (!p.l4)
		return false;
	reply_ends_of(&l->key, &p.dst, &p.src, p.family);
	l->client = bpf_htonl(p.src.lo);
	l->l4 = p.l4;
	l->key.ports = 0;
	l->key.kind = REPLY_OTHER + p.proto;
	switch (p.proto) {
	case IPPROTO_TCP:
		if (bpf_skb_load_bytes(skb, p.l4, &tcp, sizeof(tcp)))
			return false;
		l->key.ports = (__u32)tcp.source << 16 | tcp.dest;
		l->key.kind = REPLY_TCP;
		l->flags = tcp_flags(&tcp);
		return true;
	case IPPROTO_UDP:
		if (bpf_skb_load_bytes(skb, p.l4, &start, sizeof(start)))
			return false;
		l->key.ports = (__u32)start.first << 16 | start.second;
		l->key.kind = REPLY_UDP;
		return true;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (bpf_skb_load_bytes(skb, p.l4, &start, sizeof(start)) ||
		    !is_icmp_question(p.family, start.first & 0xff))
			return false;
		l->key.ports = start.third;
		l->key.kind = REPLY_ICMP;
		return true;
	}
	return true;
}

static __always_inline bool may_be_noted(struct reply_key *t)
{
	return t->kind != REPLY_TCP && t->kind != REPLY_UDP ? true : !is_service_port(t);
}

/*
 * Notes the identifier that a datagram issues which leaves from a protected service: its UDP header begins at l4, and client is the hash of its key
 * (datagram.h), whose index is that of its bucket. Returns the kind of query or request that turn_challenge() or turn_reply1() is to make of it, most often
 * 0. A global function.
 */
__noinline __u32 note_issued(struct __sk_buff *skb, __u32 l4, __u64 client, __u64 index);

/* Notes what a service sends to a client. Returns what note_issued() does. */
static __always_inline __u32 note_answer(struct __sk_buff *skb, struct leaving *l)
{
	note_client(&l->key);
	return reads_datagrams ? note_issued(skb, l->l4, reply_hash(&l->key), reply_index(&l->key)) : 0;
}

/* Notes the conversation of a packet that is not usual. A global function. */
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
 * Notes the conversation of a packet that leaves. Returns what note_issued() does. Where nothing is to be noted no function is called: a return may
 * cost 5 ns.
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
