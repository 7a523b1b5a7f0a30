// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const whyTextBytes = WhyTextsBytes / 256

// whyIndex returns the index of a slot's byte in the Why memory.
func whyIndex(s slot) int { return s.bucket()*WhyBytes + s.index() }

// OwnerEnd separates two parts of an automatic entry's text: the name of the program that added the entry, and the reason. The name has
// no space.
const OwnerEnd = ": "

// reservedTexts is the number of texts that are reserved for names of programs without a reason.
const reservedTexts = 8

// reasons assigns numbers to the texts that give the reasons of entries. It keeps only texts that are used by entries that have not expired.
type reasons struct {
	texts    []byte
	sets     []*DynamicSet
	numbers  map[string]uint8
	free     []uint8
	failed   bool // the last collection, at failedAt, did not free enough texts
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

// text returns the text of a number. The text of 0 is empty.
func (r *reasons) text(number uint8) string {
	text, _, _ := bytes.Cut(r.slot(number), []byte{0})
	return string(text)
}

func (r *reasons) slot(number uint8) []byte {
	return r.texts[int(number)*whyTextBytes:][:whyTextBytes]
}

// number returns the number of a text. If there is no space for another text, an automatic entry gets the number of a text that has only the name of
// its program. Some texts are reserved for such names, because a program could not remove its entries without the name. All other entries then get 0:
// a ban without its reason is better than no ban.
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

// ownerOf returns the part of a text that names a program, including OwnerEnd. It returns "" if the text names no program.
func ownerOf(text string) string {
	name, _, ok := strings.Cut(text, OwnerEnd)
	if !ok || strings.Contains(name, " ") {
		return ""
	}
	return name + OwnerEnd
}

// enter returns the number of a text, and adds it if it is new. It returns 0 if the text is empty, or if no more than spare texts are
// free.
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

// collect frees the texts that no entry uses. For this it reads all entries. If it did not free enough texts, it does not try again within the same
// second.
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

// shorten cuts a text at a zero byte, and to the largest size that fits. It does not split a character.
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
