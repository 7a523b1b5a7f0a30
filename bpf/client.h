/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clients of UDP services that are protected from floods. One is known that the service has answered for a while (replyflow.h),
 * or that sends an identifier which the service has issued to it, and to nobody else (datagram.h). Who sends an identifier from
 * another address has proved to be no blind forger, but is not known: the next packet needs the identifier, too.
 */
#pragma once

#include "datagram.h"
#include "flood.h"
#include "limit.h"
#include "packet.h"
#include "replyarriving.h"
#include "replyflow.h"

/* Beside the number of a flood. REPLY_LOOK has nothing charged and noted. */
enum {
	CLIENT_DRAWN = 1 << 9,  /* the packet has been drawn for a limit */
	CLIENT_FRESH = 1 << 10, /* its client has been found to be new */
};

/* Has a known client be new again. A global function. */
__noinline __u32 forget_client(__u64 pair, __u64 ends, __u64 index)
{
	__u64 hash = hash_reply_key(pair, ends), at, word;
	struct reply_bucket *b = reply_bucket(reply_index_within(index));
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (word && at < REPLY_SLOTS && reply_state_of(word) == REPLY_CLIENT)
		__sync_val_compare_and_swap(&b->word[at], word, reply_word(hash, 1, REPLY_CLIENT_NEW, now));
	return 0;
}

/*
 * Whether one more packet of a known client passes as such. One in CLIENT_SHARE is charged, since more instructions would be executed for
 * the charge than for the rest. During a flood a client is known no more with the charge that fills its limit: fifteen packets more are
 * not drawn on average.
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

/* Has a new client, by its hash, be known, and noted so many units of time ago. A global function. */
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

/* Whether an identifier is noted; if it is to be kept, it is remembered for longer. */
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
 * Whether a packet has an identifier that the service has issued to the address and port that it comes from: then it does come from there.
 * The identifier is remembered for longer. A global function.
 */
__noinline __u32 has_own_identifier(struct xdp_md *ctx, struct packet *p, __u64 client, __u32 number)
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
 * Whether a new client is known from now on. An index of WireGuard is random, and only peers get one. A server of QUIC may have the client
 * choose the identifier, or derive it, so there an attacker may know what is issued to others. A client that exceeds its limit
 * has to wait.
 */
static __always_inline bool becomes_known(struct xdp_md *ctx, struct packet *p, struct reply_key *t, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);

	if (!f || f->protocol != DATAGRAMS_WIREGUARD || !has_own_identifier(ctx, p, reply_hash(t), number) ||
	    limit_wait(&p->charged, f->each, traits_of(p)))
		return false;
	if (traits_of(p) & TRAIT_KEEP)
		promote_client(reply_hash(t), reply_index(t), 0);
	return true;
}

/*
 * Whether a packet is of a known client, and one more of it may pass as such. Beside number stands what the generated entry has found: CLIENT_DRAWN or
 * CLIENT_FRESH. A global function.
 */
__noinline __u32 known_client(struct xdp_md *ctx, struct packet *p, __u32 number)
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
 * Whether one more packet that has an identifier may pass as such: all together have a limit, as an attacker may have got many
 * identifiers. One packet in CLIENT_SHARE is charged, as of known clients. It is noted until when the limit lets no more through: with
 * the charge that fills it, as fifteen more are not drawn on average.
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
 * Whether a datagram of so many bytes behind the UDP header, which begins at l4, has an identifier that the service of a flood has
 * issued. number is that of the flood, with REPLY_LOOK if nothing is to be charged and noted, or CLIENT_DRAWN. A global function.
 */
__noinline __u32 proved_datagram(struct xdp_md *ctx, __u32 l4, __u32 length, __u32 number)
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
	struct reply_key t = { .kind = REPLY_UDP };
	__u64 client;

	if (!p)
		return 0;
	reply_ends_of(&t, &p->src, &p->dst, p->family);
	t.ports = (__u32)bpf_htons(p->port) << 16 | bpf_htons(p->sport);
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

/* By which proof a query or a request at a game server shows that it knows what was sent to its source: enum query_proof. A global function. */
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

/* The same for a query or a request at a game server that proves its address. A global function. */
__noinline __u32 proved_query(struct xdp_md *ctx, struct packet *p, __u32 number)
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

static __always_inline bool is_proved(struct xdp_md *ctx, struct packet *p, __u32 number)
{
	if (challenges && proved_query(ctx, p, number))
		return true;
	return p->payload &&
	       proved_datagram(ctx, p->l4, datagram_length(p), number | (traits_of(p) & TRAIT_KEEP ? 0 : REPLY_LOOK));
}
