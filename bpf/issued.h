/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes the identifiers that protected services issue in leaving datagrams (datagram.h): each for any client, and for the client that receives it. */
#pragma once

#include "datagram.h"
#include "flood.h"
#include "gameanswer.h"
#include "packet.h"
#include "raknetleaving.h"
#include "replyleaving.h"

/*
 * The place of the identifier that a leaving datagram issues: Datagrams.Chosen() of datagram.go. payload is the offset of
 * the datagram's payload, and length is the number of its bytes.
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

/* A mask of the bits of a word that belong to an identifier. size is the number of its bytes in this word and in the words behind it. */
static __always_inline __u64 id_mask(int size)
{
	return size >= 8 ? ~0ULL : size <= 0 ? 0 : (1ULL << 8 * size) - 1;
}

/* Notes the length of the identifiers of a service. A global function. */
__noinline __u32 note_size(__u32 number, __u32 size)
{
	struct flood_state *s = flood_state(number);

	s->id_length = size;
	for (int i = 0; i < 3; i++)
		s->id_mask[i] = id_mask((int)size - 8 * i);
	return 0;
}

/*
 * Whether a datagram shows the length of its sender's identifiers. A Handshake packet does: the server sends it in answer to a
 * client's first packet. An Initial may refuse a connection, with an identifier that an attacker chose.
 */
static __always_inline bool tells_size(const struct datagram *d)
{
	return (d->first >> 4 & 3) == (quic_version(d) == QUIC_V2 ? 3 : 2);
}

/*
 * Reads the key of the identifier that a datagram issues. l4 is the offset of its UDP header. Returns the protocol, 0 if the datagram
 * issues none. A global function, so that its data is not on the stack of its callers.
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
	expect_reply(t->pair, reply_ends(t), reply_index(t), 0, REPLY_SERVICE);
}

/*
 * Notes the identifier that a leaving datagram of a protected service issues. l4 is the offset of its UDP header. client is the hash of the client's key
 * (datagram.h), and index is the bucket of that key. Returns the kind of query or request into which turn_challenge() or turn_reply1() must turn the
 * datagram, most often 0. A global function.
 */
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
