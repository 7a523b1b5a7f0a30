// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// connections lists the TCP connections of the kernel. Listing takes long if there are many, so it is done only when a rule needs the list.
type connections func() ([]datapath.Connection, error)

// cuts returns why a rule could drop segments of an open TCP connection, "" when it cannot.
func (open connections) cuts(s *suggest.Signature) string {
	if !s.TCP() {
		return ""
	}
	list, err := open()
	if err != nil {
		return fmt.Sprintf("nobody knows which TCP connections are open: %v", err)
	}
	if slices.ContainsFunc(list, func(c datapath.Connection) bool {
		return s.MayMatch(c.Client, c.Server) || s.MayMatch(c.Server, c.Client)
	}) {
		return "it can match segments of an open TCP connection"
	}
	return ""
}

// How often the TCP connections of the kernel are listed. Listing takes long if there are many.
const (
	openEvery = time.Second
	listShare = 10 // listing takes at most 1/10 of the time
)

// open returns the TCP connections of the kernel, as of a moment ago.
func (w *Watcher) open() ([]datapath.Connection, error) {
	if !w.at.Before(w.listed) || w.at.Sub(w.listedAt) >= riseTicks*tenth && w.listed.Sub(w.listedAt) <= openEvery && w.traffic.young(w.listedAt) {
		begin := time.Now()
		w.connections, w.listErr = w.list()
		w.listedAt = w.at
		w.listed = w.at.Add(max(openEvery, listShare*time.Since(begin)))
	}
	return w.connections, w.listErr
}
