/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The connections that have proved their address. */
#pragma once

enum flow_state {
	FLOW_NONE,
	FLOW_PROVED,      /* its cookie came back; the kernel may not have the connection yet */
	FLOW_ESTABLISHED, /* the kernel has it */
};
