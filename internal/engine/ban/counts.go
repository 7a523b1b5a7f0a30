package ban

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

const countsSuffix = ".counts"

// Count adds to how many prefixes each origin has banned. The sums are kept in a file beside the bans, a line for each origin, since
// commands ban without a daemon that could add up. A sum that cannot be written is lost: a count is no reason to refuse a ban.
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

// Counts are how many prefixes each origin has banned since the file was made.
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
