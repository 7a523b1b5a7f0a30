// SPDX-License-Identifier: Apache-2.0

package image

// Constants of the protection of services that the C program shares with the generated entry, the loader and tests. Times are nanoseconds of
// CLOCK_MONOTONIC. TestEnums and TestStructLayouts compare all of them with bpf/.
const (
	ActiveTime   = 10_000_000_000 // ACTIVE_TIME of protect.h: the time for which cookies are used after the limit was exceeded
	ActiveRenew  = 1_000_000_000  // ACTIVE_RENEW: the shortest interval between two updates of active_until
	AskStranger  = 0              // ASK_STRANGER of connlookup.h: the element of Askers for packets that belong to no known flow
	AskInterval  = 10_000         // ASK_INTERVAL: the interval at which a CPU may ask the kernel about a connection
	AskBurst     = 2000           // ASK_BURST: the burst of such questions
	TickBits     = 20             // TICK_BITS of clock.h: the number of lower bits of Tick that hold the number of the tick
	CookieSlot   = 36             // SLOT_SHIFT of cookie.h: a time slot of cookies is 2^36 ns
	SentNotes    = 1 << 17        // SENT_NOTES: the size of CookiesSent
	SentEver     = 0x80           // SENT_EVER: set in each note; the bits below it are the lower bits of the number of a time slot
	SentSlots    = 3              // SENT_SLOTS: the number of time slots for which a note is valid
	SynKeysHash  = 40             // the offset of `hash` in struct syn_keys
	ActiveUntil  = 0              // the offset of `active_until` in struct protection_state
	RefusedUntil = 8              // the offset of `refused_until` there
)
