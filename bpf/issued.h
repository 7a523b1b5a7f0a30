/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes the identifiers that protected services issue in what leaves (datagram.h): each for anybody, and for the client that gets it. */
#pragma once

#include "datagram.h"
#include "flood.h"
#include "gameanswer.h"
#include "packet.h"
#include "raknetleaving.h"
#include "replyleaving.h"

/*
 * The place of the identifier that a datagram which leaves issues: Datagrams.Chosen() of datagram.go. payload is where it
 * begins, and length how many bytes it has.
 */
static __always_inline struct id_place chosen_id(struct __sk_buff *skb, const struct datagram *d, __u32 protocol,
						 __u32 payload, __u32 length)
{
	struct id_place none = {}, place = { 4, 4 };
	__u32 theirs = d->id_length;
	__u8 own;

	if (protocol == DATAGRAMS_A2S) {
		place.at = A2S_LEAST;
		return d->kind == A2S_MARK && d->start[4] == A2S_CHALLENGE && length == A2S_SHORT ? place : none;
	}
	if (protocol == DATAGRAMS_WIREGUARD) {
		if ((d->kind == bpf_htonl(WIREGUARD_INITIATION) && length == INITIATION_LENGTH) ||
		    (d->kind == bpf_htonl(WIREGUARD_RESPONSE) && length == RESPONSE_LENGTH))
			return place;
		return none;
	}
	if (length < LEAST_QUIC || !(d->first & 0x80) || !quic_version(d) || theirs > MOST_ID ||
	    bpf_skb_load_bytes(skb, payload + 6 + theirs, &own, 1))
		return none;
	place.at = 7 + theirs;
	place.size = own;
	return length < place.at + own ? none : place;
}

/* The bits of a word that bytes of an identifier have, of which so many are in this word and those behind it. */
static __always_inline __u64 id_mask(int size)
{
	return size >= 8 ? ~0ULL : size <= 0 ? 0 : (1ULL << 8 * size) - 1;
}

/* Notes how long the identifiers of a service are. A global function. */
__noinline __u32 note_size(__u32 number, __u32 size)
{
	struct flood_state *s = flood_state(number);

	s->id_length = size;
	for (int i = 0; i < 3; i++)
		s->id_mask[i] = id_mask((int)size - 8 * i);
	return 0;
}

/*
 * Whether a datagram tells how long the identifiers of its sender are: a Handshake packet does, which answers a client's
 * first. An Initial may refuse one, and have what an attacker chose.
 */
static __always_inline bool tells_size(const struct datagram *d)
{
	return (d->first >> 4 & 3) == (quic_version(d) == QUIC_V2 ? 3 : 2);
}

/*
 * Reads the key of the identifier that a datagram issues, whose UDP header begins at l4. A global function, so that what it reads is
 * not on the stack of others. Returns the protocol, 0 if there is none.
 */
__noinline __u32 read_chosen_key(struct __sk_buff *skb, __u32 l4, struct reply_key *t)
{
	struct datagram_id id = {};
	__u32 number, size, length;
	struct id_place place;
	struct datagram d = {};
	struct flood *f;
	__u64 known;

	if (!t)
		return 0;
	if (bpf_skb_load_bytes(skb, l4, &d, sizeof(d)) && /* a challenge of a game server is shorter */
	    (!serves || bpf_skb_load_bytes(skb, l4, &d, sizeof(struct a2s_start))))
		return 0;
	f = flood_of_port(d.sport, &number);
	length = bpf_ntohs(d.length) - sizeof(struct udphdr);
	if (!f || !f->protocol || f->protocol == DATAGRAMS_RAKNET || length > 0xffff)
		return 0;
	l4 += sizeof(struct udphdr);
	place = chosen_id(skb, &d, f->protocol, l4, length);
	size = id_size(place);
	if (!size || bpf_skb_load_bytes(skb, l4 + place.at, &id, size))
		return 0;
	known = read_once(&flood_state(number)->id_length);
	if (f->protocol == DATAGRAMS_QUIC && known != size && (!known || tells_size(&d)))
		note_size(number, size);
	issued_key(t, &id);
	return f->protocol;
}

static __always_inline void note_id(struct reply_key *t)
{
	expect_reply(t->pair, reply_ends(t), reply_index(t), 0, 1);
}

/* See replyleaving.h. */
__noinline __u32 note_issued(struct __sk_buff *skb, __u32 l4, __u64 client, __u64 index)
{
	__u32 protocol, kind = admits ? take_reply1(skb, l4, client, index) : 0;
	struct reply_key t = {};

	if (kind)
		return kind;
	protocol = read_chosen_key(skb, l4, &t);
	if (serves && !protocol)
		keep_game_answer(skb, l4);
	if (!protocol)
		return 0;
	if (protocol != DATAGRAMS_A2S) /* whose clients do not move, and some servers give all one challenge */
		note_id(&t);
	if (protocol == DATAGRAMS_QUIC)
		return 0;
	issued_to_key(&t, client);
	note_id(&t);
	return serves && protocol == DATAGRAMS_A2S ? query_challenged(skb, l4) : 0;
}
