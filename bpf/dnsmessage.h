/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A DNS query (RFC 1035), as far as it was read. Numbers in comments are sections of that RFC. */
#pragma once

#include "kernel.h"
#include "packet.h"
#include "siphash.h"

enum {
	DNS_NAME_AT = 8 + 12, /* in the datagram: behind the headers of UDP and DNS (4.1.1) */
	DNS_NAME_MAX = 255,   /* bytes of a name with its length bytes, the root's among them (2.3.4) */
	DNS_LABELS_MAX = 127, /* labels that a name of this length can have beside the root */
	DNS_LABEL_MAX = 63,   /* bytes; larger values are compression pointers and types of labels that nobody uses */
	DNS_QUESTION = 4,     /* bytes: type and class, behind the name (4.1.2) */
	DNS_RECORD = 11,      /* bytes of the shortest record: the root's name, type, class, TTL, length of the data */
	DNS_EXTRAS_MAX = 2,   /* additional records of a query */
	DNS_READ = DNS_NAME_AT + DNS_NAME_MAX + DNS_QUESTION + DNS_RECORD,
	DNS_TEXT = 512, /* a power of two, at least DNS_READ */

	DNS_TYPE_OPT = 41,      /* RFC 6891 */
	DNS_OPTION_COOKIE = 10, /* RFC 7873 */
	DNS_OPTIONS_MAX = 8,    /* options that are examined */

	DNS_PORTS_MAX = 8,
};

/* A DNS message, and the results of its parser. Offsets count from the UDP header. */
struct dns_message {
	__u8 text[DNS_TEXT + DNS_LABEL_MAX + 1]; /* the first bytes; any bytes may follow */
	__u8 label[DNS_LABELS_MAX + 1];          /* the offset of each label from the start of the name */
	__u32 labels;                            /* the number of labels of the name, without the root */
	__u32 options;                           /* where the OPT record's data begins, 0 without that record */
	__u32 options_end;
	__u32 name_end; /* in a response, the offset behind the name (response.h) */
	__u32 zone;     /* the place of the flooded zone that contains the name: zone.h */
	__u32 reserved;
	struct siphash hash;   /* of the labels from the last one on: names.h */
	struct charged charge; /* of a limit per hash: zone.h. The struct is too large for the stack */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dns_message);
} dns_message SEC(".maps");

/* Two bytes in network order. */
static __always_inline __u32 dns_word(struct dns_message *m, __u32 at)
{
	return m->text[at & (DNS_TEXT - 1)] << 8 | m->text[(at + 1) & (DNS_TEXT - 1)];
}
