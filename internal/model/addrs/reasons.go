package addrs

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const whyTextBytes = WhyTextsBytes / 256

// whyIndex is the place of a slot's byte in the Why memory.
func whyIndex(s slot) int { return s.bucket()*WhyBytes + s.index() }

// OwnerEnd separates, in the text of an automatic entry, the name of the program that entered it from the reason. The name has no space.
const OwnerEnd = ": "

// reservedTexts is how many texts are for names of programs alone.
const reservedTexts = 8

// reasons numbers the texts that say why an entry was made. Only the texts that live entries refer to are kept.
type reasons struct {
	texts    []byte
	sets     []*DynamicSet
	numbers  map[string]uint8
	free     []uint8
	failed   bool // collecting found nothing, at failedAt
	failedAt uint32
}

func newReasons(texts []byte, sets []*DynamicSet) *reasons {
	r := &reasons{texts: texts, sets: sets, numbers: map[string]uint8{}}
	for i := 255; i > 0; i-- {
		if text := r.text(uint8(i)); text != "" {
			r.numbers[text] = uint8(i)
		} else {
			r.free = append(r.free, uint8(i))
		}
	}
	return r
}

// text is the text of a number; that of 0 is empty.
func (r *reasons) text(number uint8) string {
	text, _, _ := bytes.Cut(r.slot(number), []byte{0})
	return string(text)
}

func (r *reasons) slot(number uint8) []byte {
	return r.texts[int(number)*whyTextBytes:][:whyTextBytes]
}

// number is the number of a text. When the texts in use leave no space for it, an automatic entry keeps the name of its program alone,
// for which some texts are reserved: else the program could not remove it. Others have 0: a ban without its reason is better than no ban.
func (r *reasons) number(text string, automatic bool, now uint32) uint8 {
	text = shorten(text)
	owner := ""
	if automatic {
		owner = ownerOf(text)
	}
	if text != owner {
		if n := r.enter(text, reservedTexts, now); n != 0 {
			return n
		}
	}
	return r.enter(owner, 0, now)
}

// ownerOf is the part of a text that names a program, with OwnerEnd; empty when it names none.
func ownerOf(text string) string {
	name, _, ok := strings.Cut(text, OwnerEnd)
	if !ok || strings.Contains(name, " ") {
		return ""
	}
	return name + OwnerEnd
}

// enter is the number of a text, 0 when it is empty or when no more than some texts are free.
func (r *reasons) enter(text string, spare int, now uint32) uint8 {
	if text == "" {
		return 0
	}
	if n, ok := r.numbers[text]; ok {
		return n
	}
	if len(r.free) <= spare {
		r.collect(now)
	}
	if len(r.free) <= spare {
		return 0
	}
	n := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	slot := r.slot(n)
	clear(slot[copy(slot, text):])
	r.numbers[text] = n
	return n
}

// collect frees the texts that no entry refers to. It looks at all entries, so after it found nothing it does not try
// again within the same second.
func (r *reasons) collect(now uint32) {
	if r.failed && r.failedAt == now {
		return
	}
	var used [256]bool
	for _, s := range r.sets {
		for at := range s.buckets.used {
			used[s.why[whyIndex(at)]] = used[s.why[whyIndex(at)]] || !expired(s.buckets.meta(at), now)
		}
	}
	for text, n := range r.numbers {
		if !used[n] {
			delete(r.numbers, text)
			r.free = append(r.free, n)
		}
	}
	r.failed, r.failedAt = len(r.free) <= reservedTexts, now
}

// shorten cuts a text to what fits, at the border of a character. A text ends at a zero byte.
func shorten(text string) string {
	text, _, _ = strings.Cut(text, "\x00")
	if len(text) <= whyTextBytes {
		return text
	}
	n := whyTextBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
