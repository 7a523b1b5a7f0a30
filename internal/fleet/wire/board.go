// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"sync"
	"time"
)

// maxNodes is the most nodes of a board. It is more than one hub serves.
const maxNodes = 1 << 15

// heard is the latest summary of a node.
type heard struct {
	Summary
	at time.Time
}

// Board contains the latest summary of each node.
type Board struct {
	mu   sync.Mutex
	rows map[string]heard
}

// Put stores the summary of a node. It returns false when there are too many nodes.
func (b *Board) Put(node string, s Summary, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows = map[string]heard{}
	}
	if _, there := b.rows[node]; !there && len(b.rows) >= maxNodes {
		return false
	}
	b.rows[node] = heard{s, now}
	return true
}

// Forget drops the summary of a node that has left.
func (b *Board) Forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rows, node)
}

// Empty reports whether there is no summary.
func (b *Board) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows) == 0
}

// View merges the summaries into a view. It drops stale summaries.
func (b *Board) View(now time.Time, most Most) *View {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := newMerging()
	for node, h := range b.rows {
		if now.Sub(h.at) >= Stale {
			delete(b.rows, node)
			continue
		}
		m.add(node, &h)
	}
	return m.view(now, most)
}
