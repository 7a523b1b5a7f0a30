// SPDX-License-Identifier: Apache-2.0

package addrs

// withMarkers returns the sorted prefixes, together with the markers that the search for each prefix needs.
func withMarkers(prefixes []classed6, lengths []uint8) []classed6 {
	space := len(prefixes)
	if len(lengths) > 1 {
		space *= 2 // an estimate
	}
	w := markerWriter{lengths: lengths, entries: make([]classed6, 0, space)}
	for _, p := range prefixes {
		for n := len(w.around); n > 0 && !w.around[n-1].covers(p.prefix6); n-- {
			w.around = w.around[:n-1]
		}
		w.mark(p.prefix6)
		w.add(p)
		w.around = append(w.around, p)
	}
	return w.entries
}

// markerWriter processes prefixes in ascending order. Prefixes that share a marker are adjacent. A prefix that is itself a marker comes before the
// longer ones. So markerWriter only needs to remember the latest entry of each length.
type markerWriter struct {
	lengths []uint8
	around  []classed6 // the prefixes that cover the current one, outermost first
	entries []classed6
	latest  [129]int // for each length, the index of its latest entry plus 1
}

func (w *markerWriter) add(e classed6) {
	w.entries = append(w.entries, e)
	w.latest[e.length] = len(w.entries)
}

// mark adds the markers that lead the search to the prefix: one at each shorter length that the search tries before
// the prefix's own.
func (w *markerWriter) mark(p prefix6) {
	for lo, hi := 0, len(w.lengths); lo < hi; {
		mid := (lo + hi) / 2
		switch length := w.lengths[mid]; {
		case length == p.length:
			return
		case length > p.length:
			hi = mid
		default:
			w.markAt(p.cut(length))
			lo = mid + 1
		}
	}
}

func (w *markerWriter) markAt(p prefix6) {
	if n := w.latest[p.length]; n > 0 && w.entries[n-1].prefix6 == p {
		w.entries[n-1].marker = true
		return
	}
	w.add(classed6{prefix6: p, class: w.bestMatch(p.length), marker: true})
}

// bestMatch returns the class of the longest prefix in around that is not longer than length.
func (w *markerWriter) bestMatch(length uint8) uint16 {
	for i := len(w.around) - 1; i >= 0; i-- {
		if w.around[i].length <= length {
			return w.around[i].class
		}
	}
	return 0
}
