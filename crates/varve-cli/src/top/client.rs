//! What a monitor answers.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// An answer takes a moment; a monitor that takes longer has gone.
const TIMEOUT: Duration = Duration::from_secs(5);

pub struct Client {
    agent: Agent,
    address: String,
    token: Option<String>,
}

impl Client {
    /// `address`: where the monitor listens, as `127.0.0.1:3480` or `http://127.0.0.1:3480/`.
    pub fn new(address: &str, token: Option<String>) -> Client {
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // It is on this machine, or at the end of a tunnel, whatever the environment says of the web.
            .proxy(None)
            .build();
        Client {
            agent: config.new_agent(),
            address: address.into(),
            token,
        }
    }

    /// What is at a path of the monitor.
    pub fn json(&self, path: &str) -> Result<Value, String> {
        let address = &self.address;
        let mut request = self.agent.get(format!("http://{address}{path}"));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request.call().map_err(|e| {
            format!(
                "no monitor answers at {address}: {e}; it is where the server's variable varve_monitor_address says, or \
                 where a program has started it"
            )
        })?;
        match answer.status().as_u16() {
            200 => {}
            401 if self.token.is_some() => {
                return Err(format!("the monitor at {address} has another token"));
            }
            401 => {
                return Err(format!(
                    "the monitor at {address} wants its token: name the file that has it by --token-file"
                ));
            }
            status => return Err(format!("{address}{path}: HTTP status {status}")),
        }
        let text = answer.body_mut().read_to_string();
        let json = text
            .map_err(|e| e.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
        json.map_err(|e| format!("{address}{path}: {e}"))
    }
}
