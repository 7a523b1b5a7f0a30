/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Notes the conversations of packets that leave (replyflow.h). egress() calls it for each packet. So usual packets
 * are parsed in the data of the skb, and a conversation that is already noted costs one look into its bucket.
 */
#pragma once

#include "datagram.h"
#include "replyclient.h"
#include "replyflow.h"
#include "l4.h"
#include "packet.h"
#include "skb.h"

/* Constants. notes_replies: whether replies are noted, because the policy passes them. notes_clients: clients of services. notes_flows: either. */
const volatile bool notes_flows;
const volatile bool notes_replies;
const volatile bool notes_clients;

/*
 * The ports of services, a bit each: TCP, then UDP. Packets that leave from these ports are not noted: a rule decides packets
 * to these ports before another rule asks for replies.
 */
__u64 service_ports[2 << 10] SEC(".data.services");

/* The UDP ports whose clients are noted, a bit each. */
__u64 client_ports[1 << 10] SEC(".data.clients");

/* A packet that leaves, and the key of a reply to it. */
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
	       0xffff; /* the verifier of Linux 6.1 knows no bounds after a byte swap */
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

/* Reads the TCP or UDP header at a place in the data. */
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
	struct ipv6hdr *six = data + LINK_HEADER;
	struct iphdr *four = data + LINK_HEADER;
	__be16 ethertype;

	if ((void *)(four + 1) > end)
		return false;
	ethertype = LINK_HEADER ? ((struct ethernet *)data)->type : skb->protocol;
	if (ethertype == bpf_htons(ETH_P_IP)) {
		if (four->version != 4 || four->ihl != 5 || four->frag_off & bpf_htons(0x3fff))
			return false;
		reply_ends4(&l->key, four->daddr, four->saddr);
		l->client = four->saddr;
		l->l4 = LINK_HEADER + sizeof(*four);
		return leaving_ports(l, four + 1, end, four->protocol);
	}
	if (ethertype != bpf_htons(ETH_P_IPV6) || (void *)(six + 1) > end)
		return false;
	reply_ends6(&l->key, &six->daddr, &six->saddr);
	l->client = six->saddr.in6_u.u6_addr32[3];
	l->l4 = LINK_HEADER + sizeof(*six);
	return leaving_ports(l, six + 1, end, six->nexthdr);
}

/*
 * The state after a segment that leaves; REPLY_NONE if it begins no flow. A reset begins none: it answers a segment that should not have
 * arrived. A FIN begins none: it ends a flow that is not known.
 */
static __always_inline __u32 reply_after_own_segment(__u32 state, __u32 flags)
{
	if (flags & TCP_RST)
		return state ? REPLY_TCP_CLOSED : REPLY_NONE;
	if (flags & TCP_SYN &&
	    flags & TCP_ACK) /* an answer; if a SYN has left before, both sides open at the same time */
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

/* 1 if a number is 0, otherwise 0. Without a branch, because each branch is one more path for the verifier. */
static __always_inline __u64 is_zero(__u64 n)
{
	return opaque(~(n | -n) >> 63);
}

/* 1 if the other side of a conversation is the client, so that its word has no number of a client; otherwise 0. Without a branch, like is_zero(). */
static __always_inline __u64 of_client(__u64 word)
{
	return opaque((reply_state_of(word) + REPLY_STATES - REPLY_CLIENT_NEW) / REPLY_STATES);
}

/* 1 if a word is for a client of a service, or for an identifier that a service has issued. Packets from outside cause such words. Otherwise 0. */
static __always_inline __u64 is_guest(__u64 word)
{
	return of_client(word) | is_zero(reply_client_of(word) ^ REPLY_SERVICE);
}

/* The number of conversations in a bucket that have the same client as a word, without those with clients of services. A global function. */
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
			   BIT(REPLY_BARE_NEW) | BIT(REPLY_FRAGMENTS) |
			   BIT(REPLY_TCP_RESET), /* a reset may have ended it */
	REPLY_ENDED = BIT(REPLY_TCP_CLOSED),
	REPLY_NEW_GUEST = BIT(REPLY_CLIENT_NEW) | BIT(REPLY_BARE_NEW),
	REPLY_WORTH_SHIFT = 20, /* the value of reply_spare() is above the rest of the life */
	REPLY_FREE = 64,        /* the least value of a slot whose conversation is over */
	REPLY_NEWCOMER = 24,    /* that of an unknown client of a service: more than of all that has not ended */
	REPLY_KEPT =
		2, /* that of a known client, and of a client's only conversation in a bucket, if it was answered: such a word is not replaced */
};

/*
 * How readily a slot is given to another conversation, without a branch: the less of its life is left, the more readily. Conversations of this host have
 * the value 0 or 1, those of clients behind it 2 to 21. Clients of services that came only once are given up before other clients of services.
 */
static __always_inline __u64 reply_spare(struct reply_bucket *b, __u64 word, __u32 now)
{
	__u32 state = reply_state_of(word), age = reply_age(word, now);
	__u64 left = (__u64)reply_life[state] + 1 - age, over = left >> 63, guest = is_guest(word), again;
	__u64 inside = (1 - guest) * (1 - is_zero(reply_client_of(word)));
	__u64 unanswered = (__u32)REPLY_UNANSWERED >> state & 1;
	__u64 spare = 2 * reply_flows_of_same(b, word) * inside + unanswered * (1 + 4 * inside) * (1 - guest);

	again = of_client(word) & word >> (REPLY_CLIENT_SHIFT + 1); /* the upper bit of CLIENT_TIMES */
	spare += guest *
		 (REPLY_KEPT + ((__u32)REPLY_NEW_GUEST >> state & 1) * (REPLY_NEWCOMER - REPLY_KEPT + 4 - 4 * again));
	spare += 32 * ((__u32)REPLY_ENDED >> state & 1);
	spare += REPLY_FREE * opaque(over) + 2 * REPLY_FREE * is_zero(state);
	return (spare << REPLY_WORTH_SHIFT) + LIFE_REPLY_TCP_OPEN + 1 - left;
}

/* The number of words in a bucket that are for clients of services or for identifiers, also if they are over. A global function. */
__noinline __u32 reply_guests(struct reply_bucket *b)
{
	__u32 n = 0;

	if (!b)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++)
		n += is_guest(read_once(&b->word[i]));
	return n;
}

/*
 * The slot for a new conversation, and in the upper half its value by reply_spare(). Words that are over are replaced first, then conversations that
 * have ended, then unknown clients of services, then unanswered conversations of the clients behind this host that have most of the bucket, then the
 * conversation with the least of its life left. If guests is set, only words for which is_guest() is 1 are replaced. A global function.
 */
__noinline __u64 reply_victim(struct reply_bucket *b, __u32 now, __u32 guests)
{
	__u64 most = 0, found = 0;

	if (!b)
		return 0;
	guests = opaque(guests) & 1;
#pragma nounroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++) {
		__u64 word = read_once(&b->word[i]);
		__u64 spare = reply_spare(b, word, now) * (1 - guests * (1 - is_guest(word)));
		__u64 more = opaque((most - spare) >> 63);

		found += (i - found) * more;
		most += (spare - most) * more;
	}
	return most >> REPLY_WORTH_SHIFT << 32 | found;
}

/* The number of conversations that displaced others, and the number of those that were not noted, because they could displace none. */
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

/* The result of an attempt to write the word of a conversation. */
enum reply_written {
	REPLY_AGAIN, /* another CPU was first */
	REPLY_WRITTEN,
	REPLY_UNWRITTEN, /* the packet begins no conversation, or there is no slot */
};

/* Writes the word of a new conversation in place of another. */
static __always_inline enum reply_written place_reply_flow(struct reply_bucket *b, __u64 next, __u32 now)
{
	__u32 guest = is_guest(next), full = guest && reply_guests(b) >= REPLY_GUESTS;
	__u64 victim = reply_victim(b, now, full), spare = victim >> 32, word;
	__u64 *slot = &b->word[victim & (REPLY_SLOTS - 1)];

	/* Clients behind this host do not displace its own conversations. Clients of services displace neither of them. */
	if (spare < (guest ? REPLY_NEWCOMER : REPLY_KEPT + 1) && reply_client_of(next)) {
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

/* The time of a new word. For an identifier it is set back: unless it is used, it is remembered no longer than an unanswered UDP packet. */
static __always_inline __u32 reply_begins(__u32 kind, __u32 now)
{
	return kind == REPLY_ISSUED ? (now - (LIFE_REPLY_BARE_NEW - LIFE_REPLY_UDP_NEW)) & (BIT(REPLY_SEEN_BITS) - 1)
				    : now;
}

/*
 * Writes the word of the conversation of a packet that leaves. as is the new state, or 0 for the state that follows from flags and kind.
 * Returns an enum reply_written. A global function.
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
		return REPLY_WRITTEN; /* only the use of an identifier extends its life */
	state = reply_is_over(word, now) ? REPLY_NONE : reply_state_of(word);
	state = as ? as : reply_after_leaving(state, l->key.kind, l->flags);
	client = reply_client_of(word); /* conntrack does not see packets of a flowtable */
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
 * Notes a conversation, or its new state. ends is reply_ends(). flags has the TCP flags, and in the upper half the new state, or 0 as in
 * write_reply_flow(). A global function.
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
 * Notes the conversation of a packet. For UDP, it first notes that later fragments may arrive: if both words are in one full bucket, the
 * second may displace the first.
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

/* Notes the answer to a client that came again. A global function, so that it does not use the stack of its callers. */
__noinline __u32 count_answer(__u64 hash, __u64 index)
{
	struct reply_bucket *b = reply_bucket(reply_index_within(index));
	__u32 now = reply_now(), times, state;
	__u64 at = find_reply_flow(b, hash), word = live_reply_flow(b, at, hash, now);

	state = reply_state_of(word);
	if (at >= REPLY_SLOTS || state < REPLY_CLIENT_NEW)
		return 0;
	times = (reply_client_of(word) & CLIENT_TIMES) + 1;
	__sync_val_compare_and_swap(&b->word[at], word,
				    reply_word(hash, times, times == CLIENT_KNOWN ? REPLY_CLIENT : state, now));
	return 0;
}

/*
 * Notes that a service answers a client. Most answers change nothing: the client was already answered in this unit of time, or
 * has not come since. A client that is not in the table is new.
 */
static __always_inline void note_client(struct reply_key *t)
{
	__u64 index = reply_index(t), hash = reply_hash(t), at, word = 0;
	struct reply_bucket *b = reply_bucket(index);
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (reply_state_of(word) < REPLY_CLIENT_NEW) { /* new, or this host began it while nothing protected the port */
		expect_reply(t->pair, reply_ends(t), index, REPLY_CLIENT_NEW << REPLY_AS_SHIFT, 1);
		return;
	}
	if (!reply_may_be(index, hash)) /* what wrote the word has not come to that yet */
		set_reply_bits(index, hash);
	if (at < REPLY_SLOTS && reply_client_of(word) & CLIENT_CAME && reply_age(word, now) > 1)
		count_answer(hash, index);
}

/* The first eight bytes of an L4 header. */
struct l4_start {
	__be16 first;
	__be16 second;
	__be16 third;
	__be16 fourth;
};

/* Reads a packet that usual_leaving() does not read. Returns false if it begins no conversation. A global function: struct packet is not on others' stack. */
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
