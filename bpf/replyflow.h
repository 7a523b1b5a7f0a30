/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The conversations that began inside: only what leaves is noted (replyleaving.h), and what arrives passes as a reply if its
 * addresses and ports, exchanged, are those of a packet that left. One table for a host, a router and a NAT gateway, as
 * packets leave behind address translation.
 *
 * A table of buckets of one cache line each, with two filters in front of it. The first has a bit for each bucket, and stays
 * in the first cache: where few conversations are open, a packet of none reads this bit and nothing else. The generated
 * entry does so in line, and therefore the index is a hash of one multiplication. Beside many conversations, the second
 * keeps most packets of none from a cache miss in a table of megabytes. It has 32 bits for each bucket, of which a
 * conversation sets two, by the hash that the tag is of. Of forged packets that reach a full bucket, one in 2^34 matches by
 * chance.
 *
 * The same table has the clients of UDP services that are protected (flood.h), in states of their own.
 *
 * What arrives inserts nothing. A new conversation in a full bucket replaces one that is over, then one of the client that
 * has the most of them there. internal/kernel/datapath/replyflows.go reads and writes the same words.
 */
#pragma once

#include "clock.h"
#include "packet.h"
#include "verifier.h"

enum reply_state {
	REPLY_NONE,
	REPLY_TCP_SYN, /* nothing has come back yet */
	REPLY_TCP_ACK, /* the same, of a connection that began before */
	REPLY_TCP_OPEN,
	REPLY_TCP_FIN_OUT, /* this side has ended */
	REPLY_TCP_FIN_IN,  /* the other side has */
	REPLY_TCP_CLOSED,  /* both have, or a reset has left */
	REPLY_TCP_RESET,   /* a reset has arrived, which may be forged: the next segment that leaves opens it again */
	REPLY_UDP_NEW,
	REPLY_UDP_OPEN,
	REPLY_ECHO,
	REPLY_BARE_NEW, /* of a protocol without ports */
	REPLY_BARE_OPEN,
	REPLY_FRAGMENTS,  /* beside one of UDP: later fragments may come from there */
	REPLY_CLIENT_NEW, /* the other side is the client: a UDP service has answered it, */
	REPLY_CLIENT,     /* or has for so long that it is known */
};

enum {
	REPLY_SLOTS = 8,
	REPLY_UNIT = 32,      /* time counts in units of 2^32 ns: 4.3 s; */
	REPLY_SEEN_BITS = 16, /* they come round after three days */
	REPLY_STATE_SHIFT = 16,
	REPLY_STATES = 16,
	REPLY_CLIENT_SHIFT = 20,
	REPLY_CLIENTS = 128,
	REPLY_TAG_SHIFT = 27,   /* image/format.go: another shift is another format */
	REPLY_BUCKET_BITS = 17, /* 8 MiB, for a million conversations; of 250,000, two are in a bucket on average */
	REPLY_BUCKETS = 1 << REPLY_BUCKET_BITS,
	REPLY_TRIES = 4,   /* to write a word that others write, too */
	REPLY_REFRESH = 6, /* a word is written again after 1/64 of its life */
};

/*
 * What the field of the client has where the other side is one: how many times it was answered in a unit of its own, and
 * whether it has come since. docs/design/udp-floods.md says how long that takes.
 */
enum {
	CLIENT_CAME = 64,
	CLIENT_MOST = 63,
	CLIENT_KNOWN = 4, /* so many times make a client known */
};

/* How long a conversation is remembered in each state, in units. */
enum {
	LIFE_REPLY_TCP_SYN = 15, /* 60 s */
	LIFE_REPLY_TCP_ACK = LIFE_REPLY_TCP_SYN,
	LIFE_REPLY_TCP_OPEN = 20432, /* 24 h */
	LIFE_REPLY_TCP_FIN_OUT = LIFE_REPLY_TCP_OPEN,
	LIFE_REPLY_TCP_FIN_IN = LIFE_REPLY_TCP_OPEN,
	LIFE_REPLY_TCP_CLOSED = 28, /* 120 s */
	LIFE_REPLY_TCP_RESET = LIFE_REPLY_TCP_CLOSED,
	LIFE_REPLY_UDP_NEW = 7,   /* 30 s */
	LIFE_REPLY_UDP_OPEN = 42, /* 180 s */
	LIFE_REPLY_ECHO = 7,
	LIFE_REPLY_BARE_NEW = 142, /* 600 s */
	LIFE_REPLY_BARE_OPEN = LIFE_REPLY_BARE_NEW,
	LIFE_REPLY_FRAGMENTS = LIFE_REPLY_UDP_OPEN,
	LIFE_REPLY_CLIENT_NEW = LIFE_REPLY_UDP_NEW,
	LIFE_REPLY_CLIENT = 42, /* 180 s */
};

static const __u16 reply_life[REPLY_STATES] = {
#define LIFE(state) [state] = LIFE_##state
	LIFE(REPLY_TCP_SYN),    LIFE(REPLY_TCP_ACK),    LIFE(REPLY_TCP_OPEN),  LIFE(REPLY_TCP_FIN_OUT),
	LIFE(REPLY_TCP_FIN_IN), LIFE(REPLY_TCP_CLOSED), LIFE(REPLY_TCP_RESET), LIFE(REPLY_UDP_NEW),
	LIFE(REPLY_UDP_OPEN),   LIFE(REPLY_ECHO),       LIFE(REPLY_BARE_NEW),  LIFE(REPLY_BARE_OPEN),
	LIFE(REPLY_FRAGMENTS),  LIFE(REPLY_CLIENT_NEW), LIFE(REPLY_CLIENT),
};

struct reply_bucket {
	__u64 word[REPLY_SLOTS];
};

/* The buckets. Only where a policy lets replies pass does the loader give the map all of them: see table(). */
struct reply_bucket reply_flows[1] SEC(".data.replied");

/* Secrets: factors of the index and of the tag, and what is added to the words of IPv6 addresses. Each is odd. */
struct reply_secrets {
	__u64 index;
	__u64 tag[3];
	__u64 address[4];
};

/* The keys and both filters; see table(). */
struct reply_filter {
	struct reply_secrets secrets;
	__u64 used[REPLY_BUCKETS / 64]; /* a bit for each bucket */
	__u32 bits[2];                  /* for each bucket, of which the loader makes REPLY_BUCKETS */
};

struct reply_filter reply_filter[1] SEC(".data.replies");

/* A conversation, as its packets arrive. Numbers as they are in the packet, so that nothing is swapped. */
struct reply_key {
	__u64 pair;  /* IPv4: the other side's address, and this side's in the upper half; IPv6: a hash of both */
	__u64 other; /* the other side's address, of IPv6 its second half */
	__u32 own;   /* this side's, of IPv6 its last word */
	__u32 ports; /* likewise; an identifier of ICMP, or 0 */
	__u32 kind;  /* enum reply_kind */
};

/* Factors that keep conversations of different protocols apart, and the value for the tag. */
enum reply_kind {
	REPLY_UDP = 0x2c1b3c6d,
	REPLY_TCP = 0x297a2d39,
	REPLY_ICMP = 0x1b56c4e9,
	REPLY_ISSUED = 0x165667b1, /* no conversation, but an identifier that a service has issued (datagram.h) */
	REPLY_OTHER = 0x55c5bab1,
};

static __always_inline struct reply_secrets *reply_secrets(void)
{
	return &table(reply_filter)->secrets;
}

/*
 * Of TCP and UDP two loads, as this side's address stands in front of the ports in a packet that arrives. Of others both
 * addresses.
 */
static __always_inline __u64 reply_index(struct reply_key *t)
{
	bool ported = t->kind == REPLY_TCP || t->kind == REPLY_UDP;
	__u64 other = ported ? t->other : t->pair, own = ported ? t->own : 0;

	return (other + ((__u64)t->ports << 32 | own) * t->kind) * reply_secrets()->index >> (64 - REPLY_BUCKET_BITS);
}

/* The ports, and the kind in the upper half. */
static __always_inline __u64 reply_ends(struct reply_key *t)
{
	return t->ports | (__u64)t->kind << 32;
}

/* Its upper bits are the tag. */
static __always_inline __u64 hash_reply_key(__u64 pair, __u64 ends)
{
	struct reply_secrets *k = reply_secrets();
	__u64 hash = (pair ^ k->tag[0]) * k->tag[1];

	return (hash ^ hash >> 32 ^ ends) * k->tag[2];
}

static __always_inline __u64 reply_hash(struct reply_key *t)
{
	return hash_reply_key(t->pair, reply_ends(t));
}

/*
 * The halves of a word, each with its secret added, multiplied: the NH of UMAC (RFC 4418, 5.2.2). A product of a whole word
 * with a secret would lose most of the secret where addresses differ in their last bytes only: they are the upper bits here.
 */
static __always_inline __u64 reply_product(__u64 word, __u64 secret)
{
	word += secret;
	return (word & 0xffffffff) * (word >> 32);
}

/*
 * Of two pairs of addresses, chosen without the secrets, few have the same sum: of NH one of 2^32. Here a carry goes from the lower half into the upper one,
 * and each secret is odd, so some bits of that are lost.
 */
static __always_inline __u64 reply_addresses6(__u64 other_hi, __u64 other_lo, __u64 own_hi, __u64 own_lo)
{
	struct reply_secrets *k = reply_secrets();

	return reply_product(other_hi, k->address[0]) + reply_product(other_lo, k->address[1]) +
	       reply_product(own_hi, k->address[2]) + reply_product(own_lo, k->address[3]);
}

static __always_inline __u64 reply_pair6(struct in6_addr *other, struct in6_addr *own)
{
	return reply_addresses6((__u64)other->in6_u.u6_addr32[1] << 32 | other->in6_u.u6_addr32[0],
				(__u64)other->in6_u.u6_addr32[3] << 32 | other->in6_u.u6_addr32[2],
				(__u64)own->in6_u.u6_addr32[1] << 32 | own->in6_u.u6_addr32[0],
				(__u64)own->in6_u.u6_addr32[3] << 32 | own->in6_u.u6_addr32[2]);
}

/* Notes the addresses of IPv4 as they stand in a packet. */
static __always_inline void reply_ends4(struct reply_key *t, __be32 other, __be32 own)
{
	t->pair = (__u64)own << 32 | other;
	t->other = other;
	t->own = own;
}

static __always_inline void reply_ends6(struct reply_key *t, struct in6_addr *other, struct in6_addr *own)
{
	t->pair = reply_pair6(other, own);
	t->other = (__u64)other->in6_u.u6_addr32[3] << 32 | other->in6_u.u6_addr32[2];
	t->own = own->in6_u.u6_addr32[3];
}

/* The same for addresses as struct packet has them. */
static __always_inline void reply_ends_of(struct reply_key *t, struct address *other, struct address *own, bool v6)
{
	reply_ends4(t, bpf_htonl(other->lo), bpf_htonl(own->lo));
	if (!v6)
		return;
	t->other = bpf_cpu_to_be64(other->lo);
	t->pair = reply_addresses6(bpf_cpu_to_be64(other->hi), t->other, bpf_cpu_to_be64(own->hi),
				   bpf_cpu_to_be64(own->lo));
}

/* Messages of ICMP that ask: echo, timestamp, information and mask (icmp_pkt_to_tuple() of the kernel), by conntrack's list. */
static __always_inline bool is_icmp_question(bool v6, __u32 type)
{
	return v6 ? type == 128 : type == 8 || type == 13 || type == 15 || type == 17;
}

/* Those that answer them. */
static __always_inline bool is_icmp_answer(bool v6, __u32 type)
{
	return v6 ? type == 129 : type == 0 || type == 14 || type == 16 || type == 18;
}

static __always_inline __u32 reply_now(void)
{
	return coarse_time() >> REPLY_UNIT & ((1 << REPLY_SEEN_BITS) - 1);
}

static __always_inline __u32 reply_state_of(__u64 word)
{
	return word >> REPLY_STATE_SHIFT & (REPLY_STATES - 1);
}

static __always_inline __u32 reply_client_of(__u64 word)
{
	return word >> REPLY_CLIENT_SHIFT & (REPLY_CLIENTS - 1);
}

/* One more than the units since a conversation was last written: 0 when a CPU that is a tick ahead wrote it. */
static __always_inline __u32 reply_age(__u64 word, __u32 now)
{
	return (now + 1 - (__u32)word) & ((1 << REPLY_SEEN_BITS) - 1);
}

static __always_inline bool reply_is_over(__u64 word, __u32 now)
{
	return reply_age(word, now) > reply_life[reply_state_of(word)] + 1;
}

static __always_inline bool is_reply_flow(__u64 word, __u64 hash)
{
	return !((word ^ hash) >> REPLY_TAG_SHIFT) && reply_state_of(word);
}

static __always_inline __u64 reply_word(__u64 hash, __u32 client, __u32 state, __u32 now)
{
	return hash >> REPLY_TAG_SHIFT << REPLY_TAG_SHIFT |
	       (__u64)(client & (REPLY_CLIENTS - 1)) << REPLY_CLIENT_SHIFT | (__u64)state << REPLY_STATE_SHIFT | now;
}

/* An index that the verifier knows nothing of, within the bounds of the table. */
static __always_inline __u64 reply_index_within(__u64 index)
{
	return index & (REPLY_BUCKETS - 1);
}

static __always_inline struct reply_bucket *reply_bucket(__u64 index)
{
	return &table(reply_flows)[index];
}

/* The bits of the second filter of a conversation, by its hash or word, of which they are in the tag. */
static __always_inline __u32 reply_bits(__u64 hash)
{
	return 1U << (hash >> 59) | 1U << ((__u32)hash >> 27);
}

/* Whether a conversation may be in the table. */
static __always_inline bool reply_may_be(__u64 index, __u64 hash)
{
	__u32 bits = reply_bits(hash);

	return (*(volatile __u32 *)&table(reply_filter)->bits[index] & bits) == bits;
}

/*
 * Sets the bits of a conversation that has been written into the table. Those of the second filter come last: while they are
 * missing, the next packet that leaves sets them (reply_is_noted()).
 */
static __always_inline void set_reply_bits(__u64 index, __u64 hash)
{
	__u64 *used = &table(reply_filter)->used[index >> 6], bit = 1ULL << (index & 63), old;

	if (!(read_once(used) & bit)) {
		old = __sync_fetch_and_or(used, bit);
		asm volatile("" : : "r"(old)); /* or it orders nothing: see clear_reply_bits() */
	}
	if (!reply_may_be(index, hash))
		__sync_fetch_and_or(&table(reply_filter)->bits[index], reply_bits(hash));
}

/* The slot of a conversation, or REPLY_SLOTS if the bucket does not have it. */
static __always_inline __u64 find_reply_flow(struct reply_bucket *b, __u64 hash)
{
	__u64 at;

#pragma unroll
	for (at = 0; at < REPLY_SLOTS; at++)
		if (is_reply_flow(read_once(&b->word[at]), hash))
			break;
	return opaque(at);
}

/* The word of a conversation in a slot of find_reply_flow(); 0 if there is none, or it is over. */
static __always_inline __u64 live_reply_flow(struct reply_bucket *b, __u64 at, __u64 hash, __u32 now)
{
	__u64 word = at < REPLY_SLOTS ? read_once(&b->word[at]) : 0;

	return is_reply_flow(word, hash) && !reply_is_over(word, now) ? word : 0;
}

/* The bits of the second filter that a bucket needs. */
static __always_inline __u32 reply_bits_of(struct reply_bucket *b)
{
	__u32 bits = 0;

#pragma unroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++) {
		__u64 word = read_once(&b->word[i]);

		if (reply_state_of(word))
			bits |= reply_bits(word);
	}
	return bits;
}

/*
 * Clears the bits of the filters that a bucket needs no more. Another CPU that notes a conversation meanwhile writes the word
 * before it reads the bits, so at least one of the two sees the change of the other. Only an atomic operation that returns
 * the old value orders memory (sweep_flows() in flow.h).
 */
static __always_inline void clear_reply_bits(struct reply_bucket *b, __u64 index)
{
	__u64 *used = &table(reply_filter)->used[index >> 6], bit = 1ULL << (index & 63);
	__u32 *bits = &table(reply_filter)->bits[index], needless;
	__u64 old = 0;

	needless = *(volatile __u32 *)bits & ~reply_bits_of(b);
	if (needless)
		old = __sync_fetch_and_and(bits, ~needless);
	needless &= reply_bits_of(b);
	if (opaque(old) && opaque(needless))
		__sync_fetch_and_or(bits, needless);
	if (reply_bits_of(b))
		return;
	old = __sync_fetch_and_and(used, ~bit);
	if (opaque(old) && reply_bits_of(b))
		__sync_fetch_and_or(used, bit);
}

/* Removes conversations that are over from a bucket. A global function. */
__noinline __u32 sweep_reply_flows(__u64 index)
{
	struct reply_bucket *b = reply_bucket(reply_index_within(index));
	__u32 now = reply_now();

#pragma unroll
	for (__u32 i = 0; i < REPLY_SLOTS; i++) {
		__u64 word = read_once(&b->word[i]);

		if (reply_state_of(word) && reply_is_over(word, now))
			__sync_val_compare_and_swap(&b->word[i], word, 0);
	}
	clear_reply_bits(b, reply_index_within(index));
	return 0;
}

/*
 * The state of a flow of TCP after a segment that arrives; REPLY_NONE for one that is no reply. As conntrack has it (tcp_conntracks in
 * net/netfilter/nf_conntrack_proto_tcp.c), but that a reset, which may be forged, does not end a flow.
 */
static __always_inline __u32 reply_after_segment(__u32 state, __u32 flags)
{
	enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

	if (flags & RST)
		return state == REPLY_TCP_CLOSED ? state : REPLY_TCP_RESET;
	if ((flags & (SYN | ACK)) == SYN) /* both sides may open at once (RFC 9293, 3.5) */
		return state == REPLY_TCP_SYN ? state : REPLY_NONE;
	if (flags & FIN) {
		if (state == REPLY_TCP_SYN)
			return REPLY_NONE;
		if (state == REPLY_TCP_FIN_OUT)
			return REPLY_TCP_CLOSED;
		return state <= REPLY_TCP_OPEN ? REPLY_TCP_FIN_IN : state;
	}
	if (state == REPLY_TCP_SYN) /* an ACK of a half-open connection passes and opens nothing (RFC 9293, 3.5.1) */
		return flags & SYN ? REPLY_TCP_OPEN : state;
	return state == REPLY_TCP_ACK ? REPLY_TCP_OPEN : state;
}

static __always_inline __u32 reply_after_arrival(__u32 state, __u32 flags)
{
	if (state < REPLY_UDP_NEW)
		return reply_after_segment(state, flags);
	return state == REPLY_UDP_NEW || state == REPLY_BARE_NEW ? state + 1 : state;
}

/* Whether a word is to be written again. */
static __always_inline bool reply_is_stale(__u64 word, __u32 state, __u32 now)
{
	return state != reply_state_of(word) ||
	       reply_age(word, now) > (reply_life[state & (REPLY_STATES - 1)] >> REPLY_REFRESH) + 1;
}

static __always_inline __u64 reply_renewed(__u64 word, __u32 state, __u32 now)
{
	return (word >> REPLY_CLIENT_SHIFT << REPLY_CLIENT_SHIFT) | (__u64)state << REPLY_STATE_SHIFT | now;
}

/*
 * Renews that later fragments may come, as a whole datagram of a flow has: fragments themselves, which anybody can forge who
 * knows the addresses, do not. A global function.
 */
__noinline __u32 renew_reply_fragments(__u64 pair)
{
	struct reply_key t = { .pair = pair, .kind = REPLY_OTHER + IPPROTO_UDP };
	__u64 hash = reply_hash(&t), at, word;
	struct reply_bucket *b = reply_bucket(reply_index(&t));
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (word && at < REPLY_SLOTS)
		__sync_val_compare_and_swap(&b->word[at], word, reply_renewed(word, REPLY_FRAGMENTS, now));
	return 0;
}

enum { REPLY_LOOK = 1 << 8 };

/*
 * Notes that a client of a service came again after a unit in which it was answered. Nothing else that arrives changes its
 * state. Returns the state.
 */
static __always_inline __u32 take_client(__u64 *slot, __u64 word, __u32 flags, __u32 now)
{
	__u64 came = word | (__u64)CLIENT_CAME << REPLY_CLIENT_SHIFT;

	if (came != word && reply_age(word, now) > 1 && !(flags & REPLY_LOOK))
		__sync_val_compare_and_swap(slot, word, came);
	return reply_state_of(word);
}

/*
 * Whether a packet that arrives is a reply to the conversation of a word: its state if so, else 0. at is the index of its bucket times
 * REPLY_SLOTS, and its slot. With flags, those of TCP, the conversation notes that it was answered; with REPLY_LOOK nothing
 * is noted. A global function.
 */
__noinline __u32 take_reply(__u64 at, __u64 word, __u32 flags, __u64 pair)
{
	struct reply_bucket *b = reply_bucket(reply_index_within(at / REPLY_SLOTS));
	__u32 now = reply_now(), state;

	if (!reply_state_of(word) || reply_is_over(word, now)) {
		if (!(flags & REPLY_LOOK))
			sweep_reply_flows(at / REPLY_SLOTS);
		return 0;
	}
	if (reply_state_of(word) >= REPLY_CLIENT_NEW)
		return take_client(&b->word[at & (REPLY_SLOTS - 1)], word, flags, now);
	state = reply_after_arrival(reply_state_of(word), flags & 0xff);
	if (!state || flags & REPLY_LOOK || state == REPLY_FRAGMENTS || !reply_is_stale(word, state, now))
		return state;
	__sync_val_compare_and_swap(&b->word[at & (REPLY_SLOTS - 1)], word, reply_renewed(word, state, now));
	if (state == REPLY_UDP_OPEN)
		renew_reply_fragments(pair);
	return state;
}

/* The ages, one less than reply_age(), below which a packet changes nothing: by state. 0: any packet does. */
static const __u16 reply_quiet[REPLY_STATES] = {
#define QUIET(state) [state] = (LIFE_##state >> REPLY_REFRESH) + 1
	QUIET(REPLY_TCP_OPEN),  QUIET(REPLY_TCP_FIN_OUT), QUIET(REPLY_TCP_FIN_IN), QUIET(REPLY_TCP_CLOSED),
	QUIET(REPLY_TCP_RESET), QUIET(REPLY_UDP_OPEN),    QUIET(REPLY_ECHO),       QUIET(REPLY_BARE_OPEN),
	QUIET(REPLY_FRAGMENTS), QUIET(REPLY_CLIENT_NEW),  QUIET(REPLY_CLIENT),
};

enum {
	REPLY_TURNS = 7, /* flags of TCP that may change any state: FIN, SYN, RST */
	/* Of packets that meet a bucket in vain, one of 16 sweeps it that the second filter lets through, and one of 256
	 * that it refuses: those whose hash has none of these bits, which no tag has. */
	REPLY_SWEEP = 0xf << 19,
	REPLY_SWEEP_REFUSED = 0xff << 19,
};

/*
 * Whether a packet that arrives is a reply: the state of its conversation if so, else 0. ends are reply_ends(), flags as for take_reply(). The generated entry calls it
 * for a bucket that is in use, packet_is_reply() for any. A reply that changes nothing ends here, and so do most packets of no conversation: beside many
 * conversations, a flood meets many buckets in use. A global function.
 */
__noinline __u32 is_reply(__u64 pair, __u64 ends, __u64 flags, __u64 index)
{
	__u64 hash = hash_reply_key(pair, ends), at, word;
	struct reply_bucket *b;

	index = reply_index_within(index);
	if (!reply_may_be(index, hash)) {
		if (hash & REPLY_SWEEP_REFUSED)
			return 0;
		goto sweep;
	}
	b = reply_bucket(index);
#pragma unroll
	for (at = 0; at < REPLY_SLOTS; at++) {
		word = read_once(&b->word[at]);
		if (!((word ^ hash) >> REPLY_TAG_SHIFT))
			goto found;
	}
	if (hash & REPLY_SWEEP)
		return 0;
sweep:
	if (!(flags & REPLY_LOOK))
		sweep_reply_flows(index);
	return 0;
found:
	at += index * REPLY_SLOTS;
	if (flags & (REPLY_TURNS | REPLY_LOOK))
		return take_reply(at, word, flags, pair);
	if ((__u16)(reply_now() - word) < reply_quiet[reply_state_of(word)])
		return reply_state_of(word);
	return take_reply(at, word, 0, pair); /* without those three, flags make no difference */
}
