/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clients of UDP services that are protected from floods. A client is known if the service has answered it for a while (replyflow.h),
 * or if it sends an identifier that the service has issued to this client alone (datagram.h). A sender whose identifier was issued to
 * another address is no blind forger, but does not become known: its next packet must have the identifier, too.
 */
#pragma once

#include "datagram.h"
#include "flood.h"
#include "limit.h"
#include "packet.h"
#include "replyarriving.h"
#include "replyflow.h"

/* Flags beside the number of a flood. One more is REPLY_LOOK (replyflow.h): with it, nothing is charged or noted. */
enum {
	CLIENT_DRAWN = 1 << 9,  /* the packet has been drawn for a limit */
	CLIENT_FRESH = 1 << 10, /* its client has been found to be new */
};

/* How many packets of a new client goes_on() passes after an answer, and how soon. A unit of time is 2^REPLY_UNIT ns. */
enum {
	CLIENT_MAY_PASS = 12, /* so many packets, */
	CLIENT_WAITS = 2,     /* each so many units at most after what was noted before */
	CLIENT_MAY_NOT = CLIENT_PASSED << CLIENT_PASSED_SHIFT,
};

/* Makes a known client a new one. Its packets must then be within the limits: goes_on() passes none of them. A global function. */
__noinline __u32 forget_client(__u64 pair, __u64 ends, __u64 index)
{
	__u64 hash = hash_reply_key(pair, ends), at, word;
	struct reply_bucket *b = reply_bucket(reply_index_within(index));
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (word && at < REPLY_SLOTS && reply_state_of(word) == REPLY_CLIENT)
		__sync_val_compare_and_swap(&b->word[at], word,
					    reply_word(hash, CLIENT_MAY_NOT | 1, REPLY_CLIENT_NEW, now));
	return 0;
}

/*
 * Whether a packet of a known client passes as one of a known client. The caller draws one packet in CLIENT_SHARE to
 * be charged, because the charge costs more instructions than the rest. During a flood, the charge that uses up the
 * limit makes the client a new one. The next charge would be too late: on average fifteen packets pass before it.
 */
static __always_inline bool stays_known(struct packet *p, struct reply_key *t, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	__u32 exceeded;

	if (!f || flood_state(number)->until <= time_of(p))
		return true;
	exceeded = limit_exceeded(p, f->each);
	if (traits_of(p) & TRAIT_KEEP && limit_wait(&p->charged, f->each, traits_of(p)))
		forget_client(t->pair, reply_ends(t), reply_index(t));
	return !exceeded;
}

/* Makes a new client known. hash is that of its key. The time in its word is set back by ago units. A global function. */
__noinline __u32 promote_client(__u64 hash, __u64 index, __u32 ago)
{
	__u64 at, word, known;
	struct reply_bucket *b = reply_bucket(reply_index_within(index));

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, reply_now());
	if (!word || at >= REPLY_SLOTS || reply_state_of(word) != REPLY_CLIENT_NEW)
		return 0;
	known = CLIENT_KNOWN | (reply_client_of(word) & CLIENT_CAME);
	__sync_val_compare_and_swap(&b->word[at], word,
				    reply_word(hash, known, REPLY_CLIENT, (word - ago) & (BIT(REPLY_SEEN_BITS) - 1)));
	return 0;
}

/* Whether an identifier is noted. If keep is set, the identifier is then remembered for longer. */
static __always_inline bool is_issued(struct reply_key *id, bool keep)
{
	struct reply_bucket *b = reply_bucket(reply_index(id));
	__u64 hash = reply_hash(id), at = find_reply_flow(b, hash), word;
	__u32 now = reply_now();

	word = live_reply_flow(b, at, hash, now);
	if (word && at < REPLY_SLOTS && keep && reply_is_stale(word, REPLY_BARE_OPEN, now))
		__sync_val_compare_and_swap(&b->word[at], word, reply_renewed(word, REPLY_BARE_OPEN, now));
	return word != 0;
}

/*
 * Whether a packet has an identifier that the service has issued to the packet's source address and port. Such an
 * identifier proves the source. It is remembered for longer. client is the hash of the client's key. A global function.
 */
__noinline __u32 has_own_identifier(context *ctx, struct packet *p, __u64 client, __u32 number)
{
	struct reply_key id = {};
	bool keep;

	if (!p || !p->payload || !read_issued_key(ctx, p->l4, datagram_length(p), number, &id))
		return 0;
	keep = traits_of(p) & TRAIT_KEEP;
	is_issued(&id, keep);
	issued_to_key(&id, client);
	return is_issued(&id, keep);
}

/*
 * Whether a new client becomes known with this packet. Only an index of WireGuard makes it known: the index is random, and
 * only peers get one. A QUIC server may let the client choose the identifier, or derive it from the client's identifier.
 * So an attacker may know the identifiers that are issued to others. A client that exceeds its limit must wait.
 */
static __always_inline bool becomes_known(context *ctx, struct packet *p, struct reply_key *t, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);

	if (!f || f->protocol != DATAGRAMS_WIREGUARD || !has_own_identifier(ctx, p, reply_hash(t), number) ||
	    limit_wait(&p->charged, f->each, traits_of(p)))
		return false;
	if (traits_of(p) & TRAIT_KEEP)
		promote_client(reply_hash(t), reply_index(t), 0);
	return true;
}

/* The word of a new client after goes_on() has passed one more of its packets. Answers to that packet do not count. */
static __always_inline __u64 passed_client(__u64 word, __u32 now)
{
	__u32 client = reply_client_of(word) & ~CLIENT_CAME;

	return reply_word(word, client + (1 << CLIENT_PASSED_SHIFT), REPLY_CLIENT_NEW, now);
}

/*
 * Whether a packet passes during a flood because the service has answered its client, which is not known yet. The client's first packet has
 * passed, so its conversation must be able to go on. An attacker can send such packets blindly, with a forged source. So few pass for each
 * client, and all together have a limit. Answers to them do not count, so a forged source does not become known sooner. A global function.
 */
__noinline __u32 goes_on(struct packet *p, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	struct reply_key t;
	struct reply_bucket *b;
	__u64 hash, at, word;
	__u32 now;

	if (!p || !f || flood_state(number)->until <= time_of(p))
		return 0;
	datagram_key(&t, p);
	hash = reply_hash(&t);
	b = reply_bucket(reply_index(&t));
	now = reply_now();
	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (!word || at >= REPLY_SLOTS || reply_state_of(word) != REPLY_CLIENT_NEW ||
	    reply_age(word, now) > CLIENT_WAITS + 1 ||
	    (reply_client_of(word) >> CLIENT_PASSED_SHIFT & CLIENT_PASSED) >= CLIENT_MAY_PASS ||
	    limit_exceeded(p, f->answered))
		return 0;
	return !(traits_of(p) & TRAIT_KEEP) ||
	       __sync_bool_compare_and_swap(&b->word[at], word, passed_client(word, now));
}

/*
 * Whether a packet is of a known client and may pass as such. number is that of the flood, with the flag CLIENT_DRAWN
 * or CLIENT_FRESH if the generated entry has drawn the packet or found its client to be new. A global function.
 */
__noinline __u32 known_client(context *ctx, struct packet *p, __u32 number)
{
	__u32 flags, state = REPLY_CLIENT_NEW, found = number & ~MAX_FLOODS;
	struct reply_key t = {};

	if (!p)
		return 0;
	number &= MAX_FLOODS;
	flags = traits_of(p) & TRAIT_KEEP ? 0 : REPLY_LOOK;
	if (!read_reply_key(ctx, p, &t, &flags))
		return 0;
	if (found != CLIENT_FRESH)
		state = is_reply(t.pair, reply_ends(&t), flags, reply_index(&t));
	if (state == REPLY_CLIENT_NEW)
		return reads_datagrams && becomes_known(ctx, p, &t, number);
	if (state != REPLY_CLIENT)
		return 0;
	if (found != CLIENT_DRAWN && bpf_get_prandom_u32() % CLIENT_SHARE)
		return 1;
	if (reads_datagrams)
		has_own_identifier(ctx, p, reply_hash(&t), number);
	return stays_known(p, &t, number);
}

/*
 * Whether one more packet with an issued identifier may pass. All such packets together have a limit, because an attacker
 * may have got many identifiers. As for known clients, one packet in CLIENT_SHARE is charged. The charge that uses up the
 * limit notes until when no packet passes. The next charge would be too late: on average fifteen packets pass before it.
 */
static __always_inline bool more_proved(__u32 number, __u32 length, bool drawn)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	__u32 traits = TRAIT_KEEP | length << LENGTH_SHIFT, exceeded;
	struct charged charged = {};
	__u64 wait;

	if (!f || (!drawn && bpf_get_prandom_u32() % CLIENT_SHARE))
		return true;
	charge_time(&charged); /* so that both calls decide by one time, not by the coarse clock */
	exceeded = charge_limit(&charged, f->proved, traits);
	wait = limit_wait(&charged, f->proved, traits);
	if (wait)
		flood_state(number)->unproved = charge_time(&charged) + wait;
	return !exceeded;
}

/*
 * Whether a datagram has an identifier that the service of a flood has issued. l4 is the offset of the UDP header, and length is the number of
 * bytes behind it. number is that of the flood, with REPLY_LOOK if nothing must be charged or noted, or with CLIENT_DRAWN. A global function.
 */
__noinline __u32 proved_datagram(context *ctx, __u32 l4, __u32 length, __u32 number)
{
	__u32 look = number & REPLY_LOOK, drawn = number & CLIENT_DRAWN;
	struct reply_key t = {};

	number &= MAX_FLOODS;
	return read_once(&flood_state(number)->unproved) <= bpf_ktime_get_ns() &&
	       read_issued_key(ctx, l4, length, number, &t) &&
	       is_reply(t.pair, reply_ends(&t), look, reply_index(&t)) && (look || more_proved(number, length, drawn));
}

/* Notes that a query with a cookie goes to the service. A global function. */
__noinline __u32 note_game_query(struct packet *p, __u64 query)
{
	struct a2s_query q = {}, *old;
	struct service_client c;

	if (!p)
		return 0;
	c = client_key(p);
	old = bpf_map_lookup_elem(&game_queries, &c);
	if (old && read_once(&old->until) > time_of(p))
		q.kinds = old->kinds;
	q.kinds = q.kinds << 8 | (query & 0xff);
	q.until = time_of(p) + A2S_WAIT;
	bpf_map_update_elem(&game_queries, &c, &q, BPF_ANY);
	return 0;
}

/* Whether a query has the challenge that the service has issued to its client. A global function. */
__noinline __u32 has_issued_challenge(struct packet *p, __u64 query)
{
	struct datagram_id id = { .word[0] = query >> 32 };
	struct reply_key t;
	__u64 client;

	if (!p)
		return 0;
	datagram_key(&t, p);
	client = reply_hash(&t);
	issued_key(&t, &id);
	issued_to_key(&t, client);
	return is_issued(&t, traits_of(p) & TRAIT_KEEP);
}

enum query_proof {
	PROVES_NOTHING,
	PROVES_COOKIE, /* a cookie of ours */
	PROVES_ISSUED, /* a challenge that the server has issued to the client, of A2S only: servers of RakNet make cookies with CRC-32, and who gets one knows all */
};

/* The proof that a query or a request at a game server is from its source address: enum query_proof. A global function. */
__noinline __u32 proves_query(struct packet *p, __u64 query)
{
	if (!p || !(query & HAS_CHALLENGE))
		return PROVES_NOTHING;
	if (is_second(query))
		return has_request_cookie(p, query) ? PROVES_COOKIE : PROVES_NOTHING;
	if (has_cookie(p, query))
		return PROVES_COOKIE;
	return has_issued_challenge(p, query) ? PROVES_ISSUED : PROVES_NOTHING;
}

/* Whether a query or a request at a game server proves its source address and may pass, like proved_datagram(). A global function. */
__noinline __u32 proved_query(context *ctx, struct packet *p, __u32 number)
{
	__u64 query;
	__u32 proof;

	if (!p || read_once(&flood_state(number)->unproved) > time_of(p))
		return 0;
	query = query_of(ctx, p, number);
	proof = proves_query(p, query);
	if (!proof)
		return 0;
	if (!(traits_of(p) & TRAIT_KEEP))
		return 1;
	if (!more_proved(number, datagram_length(p), false))
		return 0;
	if (proof == PROVES_COOKIE && !is_second(query))
		note_game_query(p, query);
	return 1;
}

static __always_inline bool is_proved(context *ctx, struct packet *p, __u32 number)
{
	if (challenges && proved_query(ctx, p, number))
		return true;
	return p->payload &&
	       proved_datagram(ctx, p->l4, datagram_length(p), number | (traits_of(p) & TRAIT_KEEP ? 0 : REPLY_LOOK));
}
