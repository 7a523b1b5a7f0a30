// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
)

// Route is one path and method of the API.
type Route struct {
	Method  string
	Path    string // below /v1, in the notation of http.ServeMux
	Summary string // one line, for the OpenAPI document
	Access  Access
	Query   []Parameter
	Body    any    // a value of the type of the request's JSON; nil: no body
	Result  any    // a value of the type of the answer's JSON; nil when the answer is not JSON
	Type    string // content type of an answer that is not JSON, such as text/event-stream

	serve func(*Call) error
}

// Parameter is a parameter of the query of a request.
type Parameter struct {
	Name, Summary string
	Many          bool // the parameter may occur several times
}

// read returns a GET route that answers with a value.
func read[R any](path, summary string, answer func(*Call, context.Context) (R, error), query ...Parameter) Route {
	var none R
	return Route{Method: http.MethodGet, Path: path, Summary: summary, Access: Read, Query: query, Result: none, serve: func(c *Call) error {
		result, err := answer(c, c.request.Context())
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, result)
	}}
}

// ask returns a route that answers a question, which is in the body, with a value.
func ask[B, R any](path, summary string, answer func(*Call, context.Context, B) (R, error)) Route {
	return posted(path, summary, Read, answer)
}

// posted returns a POST route with a body, for clients with the given access.
func posted[B, R any](path, summary string, access Access, answer func(*Call, context.Context, B) (R, error)) Route {
	var noBody B
	var none R
	return Route{Method: http.MethodPost, Path: path, Summary: summary, Access: access, Body: noBody, Result: none, serve: func(c *Call) error {
		var body B
		if err := c.decode(&body, access); err != nil {
			return err
		}
		result, err := answer(c, c.request.Context(), body)
		if err != nil {
			return err
		}
		return c.answer(http.StatusOK, result)
	}}
}

// stream returns a route that writes until all data is written or the client disconnects.
func stream(path, summary, contentType string, access Access, serve func(*Call) error, query ...Parameter) Route {
	return Route{Method: http.MethodGet, Path: path, Summary: summary, Access: access, Query: query, Type: contentType, serve: serve}
}

// shows returns the route with another required access.
func (r Route) shows(what Access) Route {
	r.Access = what
	return r
}

// answers returns the stream route with a JSON answer of this type.
func (r Route) answers(result any) Route {
	r.Result = result
	return r
}
