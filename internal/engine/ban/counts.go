// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

const countsSuffix = ".counts"

// Count adds to the number of prefixes that each origin has banned. The sums are stored in a file beside the bans, one line for each origin. They are
// in a file because commands ban without a daemon, too. If a sum cannot be written, the new counts are lost: that is no reason to refuse a ban.
func Count[O ~string](l *Log, more map[O]int) {
	add := map[string]uint64{}
	for origin, n := range more {
		if n > 0 {
			add[string(origin)] = uint64(n)
		}
	}
	if len(add) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.make() != nil {
		return
	}
	for origin, n := range l.counts() {
		add[origin] += n
	}
	var text []byte
	for _, origin := range slices.Sorted(maps.Keys(add)) {
		text = fmt.Appendf(text, "%s %d\n", origin, add[origin])
	}
	file := l.file + countsSuffix
	if os.WriteFile(file+newSuffix, text, 0o600) == nil {
		_ = os.Rename(file+newSuffix, file)
	}
}

// Counts returns how many prefixes each origin has banned since the file was created.
func (l *Log) Counts() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts()
}

func (l *Log) counts() map[string]uint64 {
	sums := map[string]uint64{}
	f, err := os.Open(l.file + countsSuffix)
	if err != nil {
		return sums
	}
	defer f.Close()
	for {
		var origin string
		var n uint64
		if _, err := fmt.Fscanf(f, "%s %d\n", &origin, &n); err != nil {
			return sums
		}
		sums[origin] = n
	}
}
