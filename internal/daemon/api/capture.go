// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"context"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// The limits of a capture, and the values for a client that gives none.
const (
	maxCapture   = 10 * time.Minute
	usualCapture = time.Minute
	maxPackets   = 1_000_000
	usualPackets = 100_000
	packetTime   = 10 * time.Second // time that a client has to receive a packet
)

var captureQuery = []Parameter{
	{Name: "rule", Summary: "only packets of the rule of this name", Many: true},
	{Name: "count", Summary: "end after so many packets, 100000 if not said, 1000000 at most"},
	{Name: "for", Summary: "end after this time, as 10s; 1m if not said, 10m at most"},
}

// capture streams packets. It ends after the requested number of packets, after the requested time, or when the client disconnects.
func (c *Call) capture() error {
	query := c.request.URL.Query()
	count, err := number(query.Get("count"), "count", usualPackets, maxPackets)
	if err != nil {
		return err
	}
	duration := usualCapture
	if text := query.Get("for"); text != "" {
		if duration, err = policy.ParseDuration(text); err != nil || duration <= 0 || duration > maxCapture {
			return badQuery("for", text, "a time of at most 10m, as 10s")
		}
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), duration)
	defer cancel()
	packets, err := sample.Open(ctx, c.parts.Host.Instance, query["rule"])
	if err != nil {
		return err
	}
	defer packets.Close()
	c.out.Header().Set("Content-Type", "application/x-pcapng")
	c.started = true
	_, err = operate.WriteCapture(ctx, packets, streamWriter{c}, count)
	if errors.Is(err, datapath.ErrNotLoaded) { // the policy was unloaded during the capture: the capture is complete until then
		return nil
	}
	return err
}

// streamWriter flushes each write to the client.
type streamWriter struct{ *Call }

func (w streamWriter) Write(p []byte) (int, error) {
	control := http.NewResponseController(w.out)
	control.SetWriteDeadline(time.Now().Add(packetTime))
	n, err := w.out.Write(p)
	if err == nil {
		err = control.Flush()
	}
	return n, err
}

// number parses the text of a parameter as a number from 1 to most. It returns usual when text is empty.
func number(text, name string, usual, most int) (int, error) {
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badQuery(name, text, "a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}
