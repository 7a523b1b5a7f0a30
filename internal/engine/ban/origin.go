package ban

import (
	"math"
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
	Manual    Origin = "manual"    // a person, or a script of theirs
	Automatic Origin = "automatic" // a limit with `ban` that was exceeded
	Fail2ban  Origin = "fail2ban"  // its action file
	CrowdSec  Origin = "crowdsec"  // decisions of a CrowdSec local API
	Suricata  Origin = "suricata"  // alerts of Suricata
	Fleet     Origin = "fleet"     // another node of the fleet, whose name begins the reason
)

// Origins are all there are, by name.
var Origins = []Origin{Automatic, CrowdSec, Fail2ban, Fleet, Manual, Suricata}

// automaticWhy begins the reason of automatic bans, which ends with the name of the rule.
const automaticWhy = "above the limit of rule "

// originEnd separates the origin from the reason in the text that the kernel keeps of an entry.
const originEnd = addrs.OwnerEnd

// reasonText is the text that the kernel keeps of an entry. A reason that a person gives can not be mistaken for that of a program.
func reasonText(o Origin, why string) string {
	if o == Automatic {
		return why
	}
	if read, text := readReason(why); o == Manual && read == Manual && text == why {
		return why
	}
	return string(o) + originEnd + why
}

// OriginOf tells by the text that is kept of an entry who asked for it, and the reason without that.
func OriginOf(text string) (Origin, string) { return readReason(text) }

// readReason takes apart the text that the kernel keeps of an entry.
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

// origin is who asks for a ban.
func (b Ban) origin() Origin {
	switch {
	case b.Rule != "":
		return Automatic
	case b.Origin == "":
		return Manual
	}
	return b.Origin
}

// length is how long a ban lasts that is entered now: 0 and Forever are those of For.
func (b Ban) length() time.Duration {
	if b.Until.IsZero() {
		return b.For
	}
	return max(time.Until(b.Until), time.Second)
}

// reason is what is noted of a ban.
func (b Ban) reason() string {
	if b.Rule != "" {
		return automaticWhy + b.Rule
	}
	return reasonText(b.origin(), b.Why)
}

// entry is what a set holds after a ban, where timeout is that of the set.
func (b Ban) entry(timeout time.Duration) Blocked {
	e := BlockedAs(b.Prefix.Masked(), "", b.reason())
	length := b.length()
	if length == 0 {
		length = timeout
	}
	if length > 0 && length != Forever {
		left := length.Seconds()
		e.Expires = &left
	}
	return e
}

// changes reports whether a ban changes the entry of its prefix that is there, where timeout is that of the set.
func (b Ban) changes(was Blocked, timeout time.Duration) bool {
	switch origin := b.origin(); {
	case origin == Manual:
		return true
	case was.Origin == Manual:
		return false
	case was.Origin == origin && (b.Replace || isKept(was.Text(), b.reason())):
		return true
	}
	return b.entry(timeout).end() > was.end()
}

// BlockedAs is an entry of a set, but for its end, by the text that is kept of it.
func BlockedAs(p netip.Prefix, set, text string) Blocked {
	b := Blocked{Prefix: p, Set: set}
	b.Origin, b.Why = readReason(text)
	if b.Origin == Automatic {
		b.Rule = strings.TrimPrefix(text, automaticWhy)
	}
	if b.Origin == Fleet {
		b.Node, _, _ = strings.Cut(b.Why, originEnd)
	}
	return b
}

// Text is what the kernel keeps of an entry beside its prefix and end.
func (b Blocked) Text() string { return reasonText(b.Origin, b.Why) }

// end is how many seconds an entry goes on.
func (b Blocked) end() float64 {
	if b.Expires == nil {
		return math.Inf(1)
	}
	return *b.Expires
}

// Owner is whose entries an Unblock may remove: all when Origin is empty, else those of an origin, and with a reason those with
// that reason alone, and those whose reason is not known: a set may have had no space for it.
type Owner struct {
	Origin Origin
	Why    string
}

// Owns reports whether an entry is the owner's.
func (o Owner) Owns(b Blocked) bool {
	return o.Origin == "" || o.Origin == b.Origin && (o.Why == "" || b.Why == "" || isKept(b.Text(), reasonText(o.Origin, o.Why)))
}

// isKept reports whether a text may be what the kernel has kept of another: it cuts one of more than 64 bytes, at the border of a
// character.
func isKept(kept, whole string) bool {
	const least = 64 - 3
	return kept == whole || len(kept) >= least && strings.HasPrefix(whole, kept)
}

// AsBans are entries with the time that they have left.
func AsBans(list []Blocked) []Ban {
	bans := make([]Ban, len(list))
	for i, b := range list {
		bans[i] = Ban{Prefix: b.Prefix, For: Forever, Why: b.Why, Rule: b.Rule, Origin: b.Origin}
		if b.Expires != nil {
			bans[i].For = max(time.Duration(*b.Expires*float64(time.Second)), time.Second)
		}
	}
	return bans
}
