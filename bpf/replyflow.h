/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The conversations that began on this side. Only packets that leave are noted (replyleaving.h). A packet that arrives passes as a reply if
 * its addresses and ports, exchanged, are those of a packet that left. One table serves a host, a router and a NAT gateway, because the
 * program at egress sees packets after address translation.
 *
 * The table has buckets of one cache line each, and two filters in front of it. The first filter has a bit for each bucket and stays in the
 * L1 cache. Where few conversations are open, a packet of no conversation reads this bit and nothing else. The generated entry tests the bit
 * in line, so the index must be cheap: it is a hash of two multiplications. The second filter has 32 bits for each bucket. A conversation
 * sets two of these, by the hash that also has its tag. Where many conversations are open, the second filter saves most packets of no
 * conversation a cache miss in a table of megabytes. Of forged packets that reach a full bucket, one in 2^34 matches by chance.
 *
 * The same table has the clients of UDP services that are protected (flood.h), in states of their own.
 *
 * Packets that arrive insert nothing. A new conversation in a full bucket replaces one that is over. If there is none, it replaces one of
 * the client that has the most conversations in the bucket. Clients of services, of which an attacker can forge many, have at most half of a
 * bucket. internal/kernel/datapath/replyflows.go reads and writes the same words.
 */
#pragma once

#include "bits.h"
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
	REPLY_TCP_RESET, /* a reset has arrived, which may be forged: it lives on, and the next segment that leaves opens it again */
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
	REPLY_SERVICE = 1,      /* the number of a client: the word is of an identifier that a service has issued */
	REPLY_GUESTS = 4,       /* words of a bucket that may be of clients of services and of identifiers */
	REPLY_TAG_SHIFT = 27,   /* image/format.go: another shift is another format */
	REPLY_BUCKET_BITS = 17, /* 8 MiB, for a million conversations; of 250,000, two are in a bucket on average */
	REPLY_BUCKETS = 1 << REPLY_BUCKET_BITS,
	REPLY_TRIES = 4,   /* to write a word that others write, too */
	REPLY_REFRESH = 6, /* a word is written again after 1/64 of its life */
};

/*
 * If the other side is the client, the field of the client's number has: in how many units of time it was answered, how many packets goes_on()
 * (client.h) has passed since then, and whether it has sent since then. docs/design/udp-floods.md says how long a client takes to become known.
 */
enum {
	CLIENT_CAME = 64,
	CLIENT_TIMES = 3, /* of a new client; that of a known one says nothing */
	CLIENT_PASSED_SHIFT = 2,
	CLIENT_PASSED = 15,
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
	LIFE_REPLY_TCP_RESET = LIFE_REPLY_TCP_OPEN,
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

/* The buckets. The loader makes REPLY_BUCKETS of them, but only if the policy needs the table: see table(). */
struct reply_bucket reply_flows[1] SEC(".data.replied");

/*
 * Secret numbers, all of them odd: factors of the index (for the addresses and for
 * the ports), factors of the tag, and summands for the words of IPv6 addresses.
 */
struct reply_secrets {
	__u64 index[2];
	__u64 tag[3];
	__u64 address[4];
};

/* The secrets and both filters; see table(). */
struct reply_filter {
	struct reply_secrets secrets;
	__u64 used[REPLY_BUCKETS / 64]; /* a bit for each bucket */
	__u32 bits[2];                  /* for each bucket, of which the loader makes REPLY_BUCKETS */
};

struct reply_filter reply_filter[1] SEC(".data.replies");

/* The key of a conversation, from the headers of its arriving packets. Numbers are in network byte order, so that none is swapped. */
struct reply_key {
	__u64 pair;  /* IPv4: the other side's address, and this side's in the upper half; IPv6: a hash of both */
	__u32 ports; /* likewise; an identifier of ICMP, or 0 */
	__u32 kind;  /* enum reply_kind */
};

/* The protocol of a conversation. The tag depends on it, but the bucket does not. */
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
 * A multilinear hash, with a secret factor for each word (Dietzfelbinger, "Universal hashing and k-wise independent random variables via
 * integer arithmetic without primes", 1996; Lemire and Kaser, "Strongly universal string hashing is fast", 2014). The upper bits are the
 * index. Two conversations that were chosen without the secrets share a bucket with a probability of 1 in REPLY_BUCKETS, as by chance. If two
 * words differ in bit 46 or a lower one, all values of the upper bits of the difference of the sums are equally probable. Ports do: they have
 * 32 bits. If addresses differ only above bit 46, the index differs, because the factor is odd. Equal hashes of IPv6 addresses add 1 in 2^31.
 */
static __always_inline __u64 reply_sum(struct reply_key *t)
{
	struct reply_secrets *k = reply_secrets();

	return t->pair * k->index[0] + t->ports * k->index[1];
}

static __always_inline __u64 reply_index(struct reply_key *t)
{
	return reply_sum(t) >> (64 - REPLY_BUCKET_BITS);
}

/* The ports of a key, with its kind in the upper half. */
static __always_inline __u64 reply_ends(struct reply_key *t)
{
	return t->ports | (__u64)t->kind << 32;
}

/* The hash of a key. Its upper bits are the tag. */
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
 * Adds a secret to a word and multiplies its halves: NH of UMAC (RFC 4418, 5.2.2). The last bytes of an address are the upper
 * bits of its word. If addresses differ only there, the product of the whole word and a secret would lose most of the secret.
 */
static __always_inline __u64 reply_product(__u64 word, __u64 secret)
{
	word += secret;
	return (word & 0xffffffff) * (word >> 32);
}

/*
 * A hash of two IPv6 addresses. Few pairs of addresses that were chosen without the secrets have the same hash: with NH, 1
 * in 2^32; here, 1 in 2^31, because a carry goes from the lower half into the upper one, and because each secret is odd.
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

/* Sets the addresses of a key to IPv4 addresses in network byte order. */
static __always_inline void reply_ends4(struct reply_key *t, __be32 other, __be32 own)
{
	t->pair = (__u64)own << 32 | other;
}

static __always_inline void reply_ends6(struct reply_key *t, struct in6_addr *other, struct in6_addr *own)
{
	t->pair = reply_pair6(other, own);
}

/* Sets the addresses of a key to those of a struct packet. */
static __always_inline void reply_ends_of(struct reply_key *t, struct address *other, struct address *own, bool v6)
{
	reply_ends4(t, bpf_htonl(other->lo), bpf_htonl(own->lo));
	if (!v6)
		return;
	t->pair = reply_addresses6(bpf_cpu_to_be64(other->hi), bpf_cpu_to_be64(other->lo), bpf_cpu_to_be64(own->hi),
				   bpf_cpu_to_be64(own->lo));
}

/* Returns the ports of an arriving packet, as struct reply_key has them. */
static __always_inline __u32 reply_ports_of(struct packet *p)
{
	return (__u32)bpf_htons(p->port) << 16 | bpf_htons(p->sport);
}

/* Sets the key of the conversation to which an arriving datagram of UDP belongs. */
static __always_inline void datagram_key(struct reply_key *t, struct packet *p)
{
	reply_ends_of(t, &p->src, &p->dst, p->family);
	t->ports = reply_ports_of(p);
	t->kind = REPLY_UDP;
}

/* Whether an ICMP message is a question: echo, timestamp, information or mask. The list is conntrack's (icmp_pkt_to_tuple() of the kernel). */
static __always_inline bool is_icmp_question(bool v6, __u32 type)
{
	return v6 ? type == 128 : type == 8 || type == 13 || type == 15 || type == 17;
}

/* Whether an ICMP message is an answer to such a question. */
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

/* One more than the number of units since a word was written; 0 if a CPU whose clock is a tick ahead wrote it. */
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

/* Masks an index, so that the verifier knows that it is within the table. */
static __always_inline __u64 reply_index_within(__u64 index)
{
	return index & (REPLY_BUCKETS - 1);
}

static __always_inline struct reply_bucket *reply_bucket(__u64 index)
{
	return &table(reply_flows)[index];
}

/* The bits of a conversation in the second filter. hash is its hash or its word: both have the tag, and the bits depend only on that. */
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
 * Sets the bits of both filters for a conversation that has been written into the table. The bits of the second
 * filter are set last: as long as they are missing, the next packet that leaves sets them (reply_is_noted()).
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

/* The word of a conversation, at the slot that find_reply_flow() returned; 0 if the word is not there or is over. */
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
 * Clears the bits of the filters that a bucket no longer needs. Another CPU may note a conversation at the same
 * time. It writes the word before it reads the bits, so at least one of the two CPUs sees the change that the other
 * has made. Only an atomic operation that returns the old value orders memory accesses (sweep_flows() in flow.h).
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
 * The state of a TCP flow after an arriving segment; REPLY_NONE if the segment is no reply. It is the state that conntrack would choose
 * (tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c). But a reset ends no flow here: it may be forged, and the window is not known.
 */
static __always_inline __u32 reply_after_segment(__u32 state, __u32 flags)
{
	enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

	if (flags & RST)
		return state >= REPLY_TCP_OPEN && state <= REPLY_TCP_FIN_IN ? REPLY_TCP_RESET : state;
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

/* Whether a word must be written again: its state changes, or the word is old. */
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
 * Extends the time for which later fragments may pass, after a whole datagram of the flow has arrived.
 * Fragments do not extend it, because anybody who knows the addresses can forge them. A global function.
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

enum { REPLY_RST = 4, REPLY_LOOK = 1 << 8 };

/*
 * Notes that a client of a service has sent a packet in a later unit of time than
 * that of its word. Any other packet changes nothing here. Returns the state.
 */
static __always_inline __u32 take_client(__u64 *slot, __u64 word, __u32 flags, __u32 now)
{
	__u64 came = word | (__u64)CLIENT_CAME << REPLY_CLIENT_SHIFT;

	if (came != word && reply_age(word, now) > 1 && !(flags & REPLY_LOOK))
		__sync_val_compare_and_swap(slot, word, came);
	return reply_state_of(word);
}

/*
 * Whether an arriving packet is a reply to the conversation of a word. Returns the state of the conversation; 0 if
 * it is no reply. at is the index of the bucket times REPLY_SLOTS, plus the slot. flags are the TCP flags of the
 * packet. The word notes that the conversation was answered, unless REPLY_LOOK is set in flags. A global function.
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
	if (flags & REPLY_RST) /* it makes the flow live neither longer nor shorter */
		now = word & (BIT(REPLY_SEEN_BITS) - 1);
	__sync_val_compare_and_swap(&b->word[at & (REPLY_SLOTS - 1)], word, reply_renewed(word, state, now));
	if (state == REPLY_UDP_OPEN)
		renew_reply_fragments(pair);
	return state;
}

/* For each state, the age below which a packet changes nothing; 0: any packet may. The age is one less than that of reply_age(). */
static const __u16 reply_quiet[REPLY_STATES] = {
#define QUIET(state) [state] = (LIFE_##state >> REPLY_REFRESH) + 1
	QUIET(REPLY_TCP_OPEN),  QUIET(REPLY_TCP_FIN_OUT), QUIET(REPLY_TCP_FIN_IN), QUIET(REPLY_TCP_CLOSED),
	QUIET(REPLY_TCP_RESET), QUIET(REPLY_UDP_OPEN),    QUIET(REPLY_ECHO),       QUIET(REPLY_BARE_OPEN),
	QUIET(REPLY_FRAGMENTS), QUIET(REPLY_CLIENT_NEW),  QUIET(REPLY_CLIENT),
};

enum {
	REPLY_TURNS = 7, /* flags of TCP that may change any state: FIN, SYN, RST */
	/* A packet of no conversation sweeps its bucket if its hash has none of these bits, which are below the tag. Of packets
	 * that the second filter lets through, one in 16 sweeps; of packets that it refuses, one in 256. */
	REPLY_SWEEP = 0xf << 19,
	REPLY_SWEEP_REFUSED = 0xff << 19,
};

/*
 * Whether an arriving packet is a reply. Returns the state of its conversation; 0 if it is no reply. ends is the result of reply_ends(), flags
 * are those of take_reply(). The generated entry asks about buckets in use only, packet_is_reply() about any. Replies that change nothing, and
 * most packets of no conversation, need no further call: where many conversations are open, a flood hits many buckets in use. A global function.
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
