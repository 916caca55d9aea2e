// fivebeans's own tests speak to port 11300. Loaded before them (mocha --require), this leads their connections to
// the server that is tested, at the port of the environment variable BEANSTALK_PORT.
"use strict";

const net = require("net");

const connect = net.Socket.prototype.connect;
const port = Number(process.env.BEANSTALK_PORT);

function isDefaultPort(options) {
  return options !== null && typeof options === "object" && Number(options.port) === 11300;
}

net.Socket.prototype.connect = function (...words) {
  // net.connect has made [options, callback] of its arguments before it calls this.
  const options = Array.isArray(words[0]) ? words[0][0] : words[0];
  if (isDefaultPort(options)) {
    Object.assign(options, { host: "127.0.0.1", port });
  } else if (Number(words[0]) === 11300) {
    words.splice(0, typeof words[1] === "string" ? 2 : 1, { host: "127.0.0.1", port });
  }
  return connect.apply(this, words);
};
