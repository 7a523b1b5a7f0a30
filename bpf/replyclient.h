/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the client of a conversation, for the table of replies. In a full bucket, a conversation of the client that has the most of
 * them is replaced. The table sees packets after address translation, where all clients behind a masquerading gateway have one address.
 * So the address is read from conntrack's entry, to which the packet points. The entry has the client's address before translation.
 *
 * A helper reads the entry from the kernel's memory. Unlike bpf_skb_ct_lookup(), the helper needs no lookup in conntrack's table, works
 * for all protocols and zones, and does not need conntrack's module.
 */
#pragma once

#include "replyflow.h"

#include <bpf/bpf_core_read.h>

/* Whether the kernel lets programs read its memory: not if it is locked down for confidentiality. Constant. */
const volatile bool reads_kernel;

/* The kernel's structs, with only the fields in use: linux/skbuff.h, net/netfilter/nf_conntrack.h and nf_conntrack_tuple.h. */
struct sk_buff___tracked {
	unsigned long _nfct; /* a pointer to struct nf_conn, with enum ip_conntrack_info in the lowest bits */
} __attribute__((preserve_access_index));

union nf_inet_addr {
	__u32 all[4]; /* of IPv4 the first; the others are 0 */
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_conn___tuples {
	struct nf_conntrack_tuple_hash tuplehash[2]; /* as packets arrive, by direction */
} __attribute__((preserve_access_index));

enum {
	TRACKED_INFO = 7,     /* the bits of enum ip_conntrack_info, */
	TRACKED_IS_REPLY = 3, /* of which these and higher ones are of the other direction */
};

/* The last word of a forwarded packet's source address before address translation; address if conntrack has not seen the packet. */
static __always_inline __u32 untranslated(struct __sk_buff *skb, __u32 address)
{
	struct sk_buff___tracked *packet = (void *)skb;
	struct nf_conn___tuples *connection;
	unsigned long tracked = 0;
	__u32 words[4] = {};

	/* A kernel that is built without conntrack has neither field. */
	if (!reads_kernel || !bpf_core_field_exists(struct sk_buff___tracked, _nfct) ||
	    !bpf_core_field_exists(struct nf_conn___tuples, tuplehash))
		return address;
	bpf_core_read(&tracked, sizeof(tracked), &packet->_nfct);
	connection = (void *)(tracked & ~(unsigned long)TRACKED_INFO);
	if (!connection)
		return address;
	if ((tracked & TRACKED_INFO) < TRACKED_IS_REPLY)
		bpf_core_read(words, sizeof(words), &connection->tuplehash[0].tuple.src.u3);
	else
		bpf_core_read(words, sizeof(words), &connection->tuplehash[1].tuple.src.u3);
	return words[3] ? words[3] : words[0];
}

/* The number of a packet's client: 0 for this host, otherwise a hash of the client's address. It is never REPLY_SERVICE. A global function. */
__noinline __u32 client_number(struct __sk_buff *skb, __u32 address)
{
	if (!skb->ingress_ifindex)
		return 0;
	return 2 + ((untranslated(skb, address) * 0x9e3779b1u) >> 16) % (REPLY_CLIENTS - 2);
}
