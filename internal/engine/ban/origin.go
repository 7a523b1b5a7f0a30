// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// Origin says who asked for a ban.
type Origin string

// The origins. All but Manual are programs.
const (
	Manual    Origin = "manual"    // a person, or a person's script
	Automatic Origin = "automatic" // a `ban` limit that was exceeded
	Fail2ban  Origin = "fail2ban"  // the action file of fail2ban
	CrowdSec  Origin = "crowdsec"  // decisions of a CrowdSec local API
	Suricata  Origin = "suricata"  // alerts of Suricata
	Fleet     Origin = "fleet"     // another node of the fleet; the reason begins with its name
)

// Origins are all origins, in the order of their names.
var Origins = []Origin{Automatic, CrowdSec, Fail2ban, Fleet, Manual, Suricata}

// automaticWhy is the start of the reason of an automatic ban. The name of the rule follows it.
const automaticWhy = "above the limit of rule "

// originEnd separates the origin from the reason in the text that the kernel stores with an entry.
const originEnd = addrs.OwnerEnd

// reasonText returns the text that the kernel stores with an entry. It makes sure that a person's reason is never read as the reason of a program.
func reasonText(o Origin, why string) string {
	if o == Automatic {
		return why
	}
	if read, text := readReason(why); o == Manual && read == Manual && text == why {
		return why
	}
	return string(o) + originEnd + why
}

// readReason splits the stored text of an entry into its origin and its reason.
func readReason(text string) (Origin, string) {
	if strings.HasPrefix(text, automaticWhy) {
		return Automatic, text
	}
	name, why, ok := strings.Cut(text, originEnd)
	if o := Origin(name); ok && o != Automatic && slices.Contains(Origins, o) {
		return o, why
	}
	return Manual, text
}

// origin returns the effective origin of a ban, with the defaults for empty fields.
func (b Ban) origin() Origin {
	switch {
	case b.Rule != "":
		return Automatic
	case b.Origin == "":
		return Manual
	}
	return b.Origin
}

// length returns the duration of a ban that is added now. It is 0 for the timeout of the set, and Forever for a ban without an end.
func (b Ban) length() time.Duration {
	if b.Until.IsZero() {
		return 0
	}
	return max(time.Until(b.Until), time.Second)
}

// Text returns the text that the kernel stores with a ban.
func (b Ban) Text() string {
	if b.Rule != "" {
		return automaticWhy + b.Rule
	}
	return reasonText(b.origin(), b.Why)
}

// entry returns the entry that results from a ban. timeout is the timeout of the set; 0 means none.
func (b Ban) entry(set string, timeout time.Duration) Ban {
	e := Read(b.Prefix.Masked(), set, b.Text(), b.Until)
	switch {
	case b.Until.IsZero() && timeout == 0:
		e.Until = Never
	case b.Until.IsZero():
		e.Until = time.Now().Add(timeout)
	}
	return e
}

// changes reports whether a ban changes was, the existing entry of its prefix. timeout is the timeout of the set.
func (b Ban) changes(was Ban, timeout time.Duration) bool {
	switch origin := b.origin(); {
	case origin == Manual:
		return true
	case was.Origin == Manual:
		return false
	case was.Origin == origin && (b.Replace || isKept(was.Text(), b.Text())):
		return true
	}
	return b.entry("", timeout).Until.After(was.Until)
}

// Read returns an entry of a set. text is the stored text of the entry.
func Read(p netip.Prefix, set, text string, until time.Time) Ban {
	b := Ban{Prefix: p, Set: set, Until: until}
	b.Origin, b.Why = readReason(text)
	if b.Origin == Automatic {
		b.Rule = strings.TrimPrefix(text, automaticWhy)
	}
	return b
}

// Node is the node that banned an entry of the fleet, "" for other entries.
func (b Ban) Node() (name string) {
	if b.Origin == Fleet {
		name, _, _ = strings.Cut(b.Why, originEnd)
	}
	return name
}

// Owner says which entries an Unblock may remove. An empty Origin allows all entries. Any other Origin allows only entries of that origin. With a
// Why, an entry must also have this reason or no stored reason: the set may have had no space for the reason.
type Owner struct {
	Origin Origin
	Why    string
}

// Owns reports whether an entry belongs to the owner.
func (o Owner) Owns(b Ban) bool {
	return o.Origin == "" || o.Origin == b.Origin && (o.Why == "" || b.Why == "" || isKept(b.Text(), reasonText(o.Origin, o.Why)))
}

// isKept reports whether kept may be the stored form of the text whole. The kernel truncates a text of more than 64 bytes, at the boundary of a UTF-8
// character.
func isKept(kept, whole string) bool {
	const least = 64 - 3
	return kept == whole || len(kept) >= least && strings.HasPrefix(whole, kept)
}
