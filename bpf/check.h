/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The built-in checks. internal/model/packet/check.go defines each; a test compares the two lists. */
#pragma once

#include "bits.h"
#include "verifier.h"

enum check {
	CHECK_TRUNCATED,
	CHECK_IP_HEADER,
	CHECK_VLAN_DEPTH,
	CHECK_SOURCE_MAC,
	CHECK_TTL_ZERO,
	CHECK_SOURCE_ROUTE,
	CHECK_IP_OPTIONS,
	CHECK_TINY_FRAGMENT,
	CHECK_FRAGMENT_OVERFLOW,
	CHECK_ATOMIC_FRAGMENT,
	CHECK_EXT_HEADERS,
	CHECK_EXT_ORDER,
	CHECK_LAND,
	CHECK_SOURCE_ADDRESS,
	CHECK_BOGON_SOURCE,
	CHECK_OWN_SOURCE,
	CHECK_ND_HOP_LIMIT,
	CHECK_TCP_HEADER,
	CHECK_TCP_FLAGS,
	CHECK_PORT_ZERO,
	CHECK_UDP_SOURCE_ZERO,
	CHECK_TCP_OPTIONS,
	CHECK_SYN_DATA,
	CHECK_SYN_LOW_PORT,
	CHECK_SYN_NO_MSS,
	CHECK_SYN_WINDOW_ZERO,
	CHECK_ACK_ZERO,
	CHECK_UDP_LENGTH,
	CHECK_UDP6_CHECKSUM,
	CHECK_REFLECTOR_SOURCE,
	CHECK_ICMP_TYPE,
	CHECK_ICMP_LARGE,
	CHECK_IP_PROTOCOL,
	CHECK_IP_CHECKSUM,
	NUM_CHECKS,
};

/* The checks that drop, one bit each. Constant from load on, so the verifier removes the code of all others. */
const volatile __u64 enabled_checks;

/* The checks that only count packets, one bit each. None of them is in enabled_checks. */
const volatile __u64 observed_checks;

/*
 * Records that a packet fails a check, whether or not the check is enabled: a branch on that would cost more than the
 * condition. Checks that are not enabled are masked out at the end.
 */
#define fail_if(failed, check, condition)                         \
	do {                                                      \
		if (condition)                                    \
			(failed) = opaque((failed) | BIT(check)); \
	} while (0)

/* Checks of the sender's address and port. When replies_first is set, a constant to the verifier, replies are exempt from them. */
#define SENDER_CHECKS (BIT(CHECK_BOGON_SOURCE) | BIT(CHECK_REFLECTOR_SOURCE))
const volatile bool replies_first;

/* Whether a check drops or counts packets. Test this before you compute a condition that is expensive. */
#define enabled(check) ((enabled_checks | observed_checks) & BIT(check))
