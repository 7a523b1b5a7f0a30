// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// Limits of the size of a request's body in bytes, and of the time that a client may take to receive an answer.
const (
	maxBody     = 4 << 20  // for a change
	maxQuestion = 64 << 10 // for a question
	answerTime  = 20 * time.Second
)

// Call is a request that is being answered.
type Call struct {
	*Server
	limits
	from    Origin
	by      Peer
	request *http.Request
	out     http.ResponseWriter
	started bool // whether a part of the answer is written
}

// noBody refuses a request that announces a body. Otherwise net/http would wait for the body before it sends the answer, and a client that never
// sends the body could hold a stream and the slot of its request forever.
func (c *Call) noBody() error {
	if c.request.ContentLength == 0 {
		return nil
	}
	http.NewResponseController(c.out).EnableFullDuplex() // answer without waiting for the body
	c.out.Header().Set("Connection", "close")
	return &Error{http.StatusBadRequest, "the request has a body, which " + c.request.URL.Path + " does not take", "send none"}
}

// decode reads the body of a request as JSON. access is the access that the route requires, and sets the limit of the body. An unknown key is an
// error.
func (c *Call) decode(into any, access Access) error {
	most := int64(maxBody)
	if access != Change {
		most = maxQuestion
	}
	kind, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" { // a web page cannot send this content type to another site without a preflight request (CORS)
		return &Error{http.StatusUnsupportedMediaType, "the body is not said to be JSON", "send the header Content-Type: application/json"}
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.out, c.request.Body, most))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", most), "send it in parts"}
	}
	if err != nil {
		return &Error{http.StatusBadRequest, "the body ends too soon: " + err.Error(), ""}
	}
	http.NewResponseController(c.out).SetReadDeadline(time.Time{}) // the deadline was for the body, which is complete; the answer may take longer
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Error{http.StatusBadRequest, "the body cannot be read: " + err.Error(), "docs/openapi.json, which GET /v1/openapi.json returns, says what it has"}
	}
	if _, err := d.Token(); err != io.EOF {
		return &Error{http.StatusBadRequest, "the body has more than one value", "send one"}
	}
	return nil
}

// answer writes a value as JSON, in the format of the commands' --json.
func (c *Call) answer(status int, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	c.out.Header().Set("Content-Type", "application/json")
	return c.write(status, text.Bytes())
}

// write writes a whole answer. It closes the connection of a client that does not receive the answer within answerTime.
func (c *Call) write(status int, text []byte) error {
	c.started = true
	http.NewResponseController(c.out).SetWriteDeadline(time.Now().Add(answerTime))
	c.out.Header().Set("Content-Length", fmt.Sprint(len(text)))
	c.out.WriteHeader(status)
	c.out.Write(text) // an error means that the client has gone
	return nil
}

// fail answers with an error. If a part of an answer is sent, fail closes the connection instead, so that the client sees that the answer is
// incomplete. fail also answers when the context of the request has ended, because the client may still wait, and net/http would send status 200.
func (c *Call) fail(err error) {
	ended := c.request.Context().Err() != nil // the client has gone or has not sent the body, or the daemon ends
	if c.started && ended {
		return
	}
	if c.started {
		panic(http.ErrAbortHandler)
	}
	status := statusOf(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		c.out.Header().Set("Retry-After", "1")
	}
	if status == http.StatusInternalServerError && !ended {
		c.Warn(c.request.URL.Path + ": " + err.Error())
	}
	c.answer(status, failure(err))
}
