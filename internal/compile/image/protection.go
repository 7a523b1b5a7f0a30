package image

// What the protection of services does in the C program and elsewhere too: in the generated entry, in what the loader writes, in tests.
// Times are nanoseconds of CLOCK_MONOTONIC. TestEnums and TestStructLayouts compare all with bpf/.
const (
	ActiveTime   = 10_000_000_000 // ACTIVE_TIME of protect.h: cookies go on for so long after the limit was exceeded,
	ActiveRenew  = 1_000_000_000  // ACTIVE_RENEW: which is noted again so long after it was
	AskStranger  = 0              // ASK_STRANGER of connlookup.h: the element of Askers for packets of no known flow
	AskInterval  = 10_000         // ASK_INTERVAL: between two questions of a CPU to the kernel
	AskBurst     = 2000           // ASK_BURST: and so many more at once
	TickBits     = 20             // TICK_BITS of clock.h: the lower bits of Tick are the number of a tick
	CookieSlot   = 36             // SLOT_SHIFT of cookie.h: a time slot of cookies is 2^36 ns
	SentNotes    = 1 << 17        // SENT_NOTES: the size of CookiesSent
	SentEver     = 0x80           // SENT_EVER: set in each note; below are the lower bits of a slot's number
	SentSlots    = 3              // SENT_SLOTS: so many slots a note is good for
	SynKeysHash  = 40             // the offset of `hash` in struct syn_keys
	ActiveUntil  = 0              // the offsets of `active_until`
	RefusedUntil = 8              // and of `refused_until` in struct protection_state
)
